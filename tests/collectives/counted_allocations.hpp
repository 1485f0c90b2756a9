#pragma once
// Counts the allocations of a thread, for tests of code that must not allocate. Linked into the test program of this
// folder.
#include <cstddef>

namespace hvd::testing {

// Returns how often this thread has called operator new so far.
std::size_t counted_allocations() noexcept;

}  // namespace hvd::testing
