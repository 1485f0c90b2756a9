#pragma once
// Keeps descriptors from forked children. Otherwise a connection would stay open as long as some child lives (for
// example a data loader's worker), and its other end would not notice the death of its owner.
namespace hvd::posix {

// From now on a child that is forked from this process finds /dev/null in place of the descriptor. The number is not
// left free, so that closing it in the child cannot close another file. May be called on any thread. Call
// stop_withholding() before you close the descriptor.
void withhold_from_children(int descriptor);
void stop_withholding(int descriptor);

}  // namespace hvd::posix
