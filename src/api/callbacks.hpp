#pragma once
// The functions of horovod.h, and for each whether a callback on completion (on_done, on_end) may call it. Callbacks
// run on the engine's thread, for which all operations and all other ranks wait, or on a thread for callbacks, for
// which all other callbacks wait. So a function that waits for an operation, for a rank or for a file is refused there.
#include <cstdint>
#include <string_view>

namespace hvd::api {

enum class InCallback : std::uint8_t {
  allowed,
  refused,
  refused_and_logged,   // the function has no status, so the log has the error, too
  refused_if_it_waits,  // for a handle that is not done
};

struct FunctionRow {
  std::string_view name;
  InCallback in_callback;
};

inline constexpr FunctionRow functions[] = {
    {"hvd_last_error", InCallback::allowed},
    {"hvd_version", InCallback::allowed},
    {"hvd_init", InCallback::refused},
    {"hvd_init_with", InCallback::refused},
    {"hvd_shutdown", InCallback::refused_and_logged},
    {"hvd_stop", InCallback::refused_and_logged},
    {"hvd_get_world", InCallback::allowed},
    {"hvd_enter", InCallback::allowed},
    {"hvd_leave", InCallback::allowed},
    {"hvd_mpi_built", InCallback::allowed},
    {"hvd_mpi_thread_level", InCallback::allowed},
    {"hvd_local_device", InCallback::allowed},
    {"hvd_get_device_facts", InCallback::allowed},
    {"hvd_device_built", InCallback::allowed},
    {"hvd_nccl_built", InCallback::allowed},
    {"hvd_has_device", InCallback::allowed},
    {"hvd_is_running", InCallback::allowed},
    {"hvd_add_process_set", InCallback::refused},
    {"hvd_remove_process_set", InCallback::refused},
    {"hvd_process_set_ids", InCallback::allowed},
    {"hvd_process_set", InCallback::allowed},
    {"hvd_rows_of", InCallback::allowed},
    {"hvd_prepare", InCallback::allowed},
    {"hvd_op_release", InCallback::allowed},
    {"hvd_start", InCallback::allowed},
    {"hvd_poll", InCallback::allowed},
    {"hvd_wait", InCallback::refused_if_it_waits},
    {"hvd_wait_on", InCallback::refused_if_it_waits},
    {"hvd_release", InCallback::allowed},
    {"hvd_result_shape", InCallback::allowed},
    {"hvd_result_splits", InCallback::allowed},
    {"hvd_result_device", InCallback::allowed},
    {"hvd_result_copy", InCallback::allowed},
    {"hvd_result_take", InCallback::allowed},
    {"hvd_shared_allocate", InCallback::refused},
    {"hvd_shared_free", InCallback::refused_and_logged},
    {"hvd_shared_hold", InCallback::allowed},
    {"hvd_shared_drop", InCallback::allowed},
    {"hvd_should_stop", InCallback::refused},
    {"hvd_shelter_child", InCallback::allowed},
    {"hvd_request_stop", InCallback::allowed},
    {"hvd_stop_reason", InCallback::allowed},
    {"hvd_get_elastic_facts", InCallback::allowed},
    {"hvd_take_hosts_updated", InCallback::allowed},
    {"hvd_timeline_start", InCallback::refused},
    {"hvd_timeline_stop", InCallback::refused},
    {"hvd_checkpoint_save", InCallback::refused},
    {"hvd_checkpoint_copy", InCallback::allowed},
    {"hvd_checkpoint_open", InCallback::refused},
    {"hvd_checkpoint_open_before", InCallback::refused},
    {"hvd_checkpoint_close", InCallback::allowed},
    {"hvd_checkpoint_get_info", InCallback::allowed},
    {"hvd_checkpoint_get_entry", InCallback::allowed},
    {"hvd_checkpoint_read", InCallback::refused},
    {"hvd_checkpoint_claim", InCallback::refused},
    {"hvd_checkpoint_release", InCallback::allowed},
    {"hvd_checkpoint_library", InCallback::allowed},
    {"hvd_meeting_open", InCallback::refused},
    {"hvd_meeting_enter", InCallback::refused},
    {"hvd_meeting_variables", InCallback::allowed},
    {"hvd_meeting_rank_ended", InCallback::refused},
    {"hvd_meeting_put", InCallback::refused},
    {"hvd_meeting_wait", InCallback::refused},
    {"hvd_meeting_get", InCallback::refused},
    {"hvd_meeting_close", InCallback::refused_and_logged},
    {"hvd_counter", InCallback::allowed},
    {"hvd_visit_knobs", InCallback::allowed},
    {"hvd_visit_settings", InCallback::allowed},
    {"hvd_last_error_id", InCallback::allowed},
};

// A function that its row refuses. A name without such a row does not compile.
class RefusedFunction {
 public:
  consteval RefusedFunction(const char* name) : row_(row_of(name)) {}
  const FunctionRow* operator->() const { return row_; }

 private:
  static consteval const FunctionRow* row_of(std::string_view name) {
    for (const FunctionRow& row : functions)
      if (row.name == name && row.in_callback != InCallback::allowed) return &row;
    throw "functions[] has no such function, or allows it in a callback";
  }
  const FunctionRow* row_;
};

// Returns true, with the error for hvd_last_error(), if the function is called in a callback. Every function that its
// row refuses asks this first.
bool refuse_in_callback(RefusedFunction function);

}  // namespace hvd::api
