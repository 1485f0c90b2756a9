#pragma once
// The StopWatch of this process: it notices that the job should end, for all runtimes that the process makes through
// the C interface.
#include "base/deadline.hpp"
#include "base/settings/environment.hpp"
#include "runtime/runtime.hpp"

namespace hvd::api {

// Call after a runtime was made: the StopWatch then tells this runtime when the job should end. Fails if
// HOROVOD_STOP_SIGNALS is malformed.
Status listen_for_stops(runtime::Runtime& runtime, const Environment& environment);
void forget_stops(const runtime::Runtime& runtime);
// Tells the StopWatch how long the writing of a checkpoint took.
void note_write(Clock::duration time);

}  // namespace hvd::api
