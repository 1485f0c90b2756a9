#include "api/runtime_of_c.hpp"

#include <string>

#include "api/answer.hpp"
#include "api/callbacks.hpp"
#include "base/log.hpp"
#include "runtime/operations/callbacks.hpp"

namespace hvd::api {

namespace {

hvd_status no_runtime() {
  // The text is Horovod's, and users know it.
  return fail(ErrorCode::not_initialized, "Horovod has not been initialized; use hvd.init().");
}

}  // namespace

hvd_status in_forked_child() {
  return fail(
      ErrorCode::invalid_argument,
      "this process was forked from a rank after hvd.init(); only the rank itself may communicate. Do the work of "
      "the child without Horovod, or send its result to the rank");
}

hvd_status why_unusable(const hvd_runtime* runtime) {
  return runtime == nullptr ? no_runtime() : in_forked_child();
}

bool refuse_in_callback(RefusedFunction function) {
  if (!runtime::calls_callbacks()) return false;
  (void)fail(
      ErrorCode::invalid_argument,
      std::string(function->name) +
          " was called in a callback on completion (on_done, on_end), whose thread must not wait, and did nothing; "
          "start operations there, and wait elsewhere");
  if (function->in_callback == InCallback::refused_and_logged) log::error(last_error().text);
  return true;
}

}  // namespace hvd::api
