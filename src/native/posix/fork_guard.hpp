#pragma once
// Descriptors that a forked child must not keep. Otherwise a connection would stay open as long as some child lives (a
// data loader's worker, say), and its other end would not notice the death of its owner.
namespace hvd::posix {

// From now on a child forked from this process finds /dev/null in the descriptor's place (not a free number, so that
// closing it there cannot hit something else). Any thread. Undo before closing the descriptor.
void withhold_from_children(int descriptor);
void stop_withholding(int descriptor);

}  // namespace hvd::posix
