#pragma once
// How far in the log the operations reach that a thread has waited for, by runtime and process set. The same on all
// ranks at the same place of a program, since they wait for the same operations there.
#include <cstdint>

#include "base/ids.hpp"

namespace hvd::runtime {

// Of the calling thread. `runtime` is Handles::runtime(). Allocates the first time only.
void note_synchronised(std::uint32_t runtime, ProcessSetId set, std::uint64_t record);
std::uint64_t synchronised(std::uint32_t runtime, ProcessSetId set);  // 0: nothing yet

}  // namespace hvd::runtime
