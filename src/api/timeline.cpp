// The C functions that start and stop the timeline.
#include "api/answer.hpp"
#include "api/callbacks.hpp"
#include "api/runtime_of_c.hpp"

using hvd::ErrorCode;
using hvd::api::fail;
using hvd::api::refuse_in_callback;
using hvd::api::usable;
using hvd::api::why_unusable;

extern "C" {

hvd_status hvd_timeline_start(hvd_runtime* runtime, const char* path, int mark_cycles) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (refuse_in_callback("hvd_timeline_start")) return HVD_INVALID_ARGUMENT;
  if (path == nullptr || *path == '\0')
    return fail(ErrorCode::invalid_argument, "hvd_timeline_start needs the path of a file; got none");
  auto started = runtime->runtime->timeline().start(path, mark_cycles != 0);
  return started ? HVD_OK : fail(started.error());
}

hvd_status hvd_timeline_stop(hvd_runtime* runtime) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (refuse_in_callback("hvd_timeline_stop")) return HVD_INVALID_ARGUMENT;
  runtime->runtime->timeline().stop();
  return HVD_OK;
}

}  // extern "C"
