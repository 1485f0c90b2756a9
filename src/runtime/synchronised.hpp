#pragma once
// Remembers the last record of the log for which the calling thread has waited, for each runtime and process set. At
// the same place of a program this record is the same on all ranks, because they have waited for the same operations.
#include <cstdint>

#include "base/ids.hpp"

namespace hvd::runtime {

// These functions concern the calling thread. `runtime` is Handles::runtime(). Only the first call of a thread
// allocates memory.
void note_synchronised(std::uint32_t runtime, ProcessSetId set, std::uint64_t record);
// returns 0 if the thread has waited for nothing yet
std::uint64_t synchronised(std::uint32_t runtime, ProcessSetId set);

}  // namespace hvd::runtime
