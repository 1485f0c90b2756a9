#pragma once
// What a process wishes about the end of its job, for all runtimes of the C interface: the one StopWatch.
#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "runtime/runtime.hpp"

namespace hvd::api {

// A runtime has been made: it hears the wishes of this process. Fails if HOROVOD_STOP_SIGNALS is malformed.
Status listen_for_stops(runtime::Runtime& runtime, const Environment& environment);
void forget_stops(const runtime::Runtime& runtime);
// A checkpoint was written in this time.
void note_write(Clock::duration time);

}  // namespace hvd::api
