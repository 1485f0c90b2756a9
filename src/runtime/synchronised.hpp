#pragma once
// Remembers for the calling thread, by runtime and process set, the last record of the log for which it has waited. At
// the same place of a program the value is equal on all ranks, because they wait for the same operations there.
#include <cstdint>

#include "base/ids.hpp"

namespace hvd::runtime {

// These functions concern the calling thread. `runtime` is Handles::runtime(). Only the first call of a thread
// allocates memory.
void note_synchronised(std::uint32_t runtime, ProcessSetId set, std::uint64_t record);
// returns 0 if the thread has waited for nothing yet
std::uint64_t synchronised(std::uint32_t runtime, ProcessSetId set);

}  // namespace hvd::runtime
