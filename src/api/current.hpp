#pragma once
// The current runtime of this process, for threads that have no pointer to it (hvd_enter).
#include "api/horovod.h"

namespace hvd::api {

// Makes the runtime the current one, if there is none.
void offer_as_current(hvd_runtime* runtime);
// From here on nobody enters the runtime. If threads are in it, ends its operations, so that the threads do not wait
// for one, and returns when all have left. Does nothing if it is not the current runtime.
void retire_current(hvd_runtime* runtime);

}  // namespace hvd::api
