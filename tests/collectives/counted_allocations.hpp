#pragma once
// Counts what a thread allocates, for tests of code that must not. Linked into the test program of this folder.
#include <cstddef>

namespace hvd::testing {

// By this thread, through operator new, so far.
std::size_t counted_allocations() noexcept;

}  // namespace hvd::testing
