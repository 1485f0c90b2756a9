// The C functions that wait for handles and take results.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>

#include "api/answer.hpp"
#include "api/callbacks.hpp"
#include "api/runtime_of_c.hpp"
#include "base/deadline.hpp"
#include "base/error_ids.hpp"
#include "runtime/operations/handle.hpp"

using hvd::ErrorCode;
using hvd::api::fail;
using hvd::api::id_of;
using hvd::api::refuse_in_callback;
using hvd::api::usable;
using hvd::api::why_unusable;
using hvd::runtime::Handles;

namespace {

static_assert(HVD_MAX_HANDLES == Handles::most);

hvd::runtime::HandleCell* find_handle(hvd_runtime* runtime, hvd_handle handle) {
  return runtime->runtime->find(handle);
}
hvd_status no_such_handle() {
  return fail(ErrorCode::invalid_argument, "there is no such handle; it was released, or never given out");
}

// Waits until the handle is done, and sets `cell` to it. On a failure returns its status and sets the error.
hvd_status wait_until_done(hvd::api::RefusedFunction function, hvd_runtime* runtime, hvd_handle handle,
                           int64_t timeout_ms, hvd::runtime::HandleCell*& cell) {
  if (!usable(runtime)) return why_unusable(runtime);
  cell = find_handle(runtime, handle);
  if (cell == nullptr) return no_such_handle();
  if (!runtime->runtime->is_done(*cell)) {
    if (refuse_in_callback(function)) return HVD_INVALID_ARGUMENT;
    auto deadline =
        timeout_ms < 0 ? hvd::Deadline::never() : hvd::Deadline::after(std::chrono::milliseconds(timeout_ms));
    if (!runtime->runtime->wait(*cell, deadline))
      return fail(ErrorCode::timeout, "not done within " + std::to_string(timeout_ms) + " ms; it goes on");
  }
  runtime->runtime->note_synchronised(*cell);
  return HVD_OK;
}

// The outcome of a done handle whose streams were ordered with the result `ordered`.
hvd_status outcome_of(const hvd::runtime::HandleCell& cell, const hvd::Status& ordered) {
  if (!cell.error && ordered) return HVD_OK;
  if (!cell.error && ordered.error().code == ErrorCode::invalid_argument)
    return fail(hvd::identified(ordered.error(), "HVD2104"));
  const hvd::Error& error = cell.error ? *cell.error : ordered.error();
  std::string_view id = id_of(error.code, "", "HVD2103");
  return id.empty() ? fail(error) : fail(hvd::identified(error, id));
}

// Returns the handle if the calling thread is in a callback that is told of its index-th operation. The handle may have
// been released before.
hvd::runtime::HandleCell* handle_in_callback(hvd_handle handle, size_t index) {
  const hvd::runtime::UseInCallback& use = hvd::runtime::use_in_callback();
  const bool is_meant = use.handle != nullptr && Handles::number_of(*use.handle) == handle && use.index == index;
  return is_meant ? use.handle : nullptr;
}

// Returns the result that the runtime kept for this operation, though its data may have been taken. Returns null and
// sets the error if there is none.
hvd::runtime::KeptResult* find_result(hvd_runtime* runtime, hvd_handle handle, size_t index) {
  hvd::runtime::HandleCell* cell = handle_in_callback(handle, index);
  const bool is_in_callback = cell != nullptr;
  if (cell == nullptr) cell = find_handle(runtime, handle);
  if (cell == nullptr) {
    (void)no_such_handle();
    return nullptr;
  }
  if (!is_in_callback && !runtime->runtime->is_done(*cell)) {
    (void)fail(ErrorCode::invalid_argument, "the handle is not done; wait for it first");
    return nullptr;
  }
  // Only results that were kept have a shape, and they have it also when the program has taken the data.
  const bool is_kept = index < cell->results.size() && !cell->results[index].shape.empty();
  if (is_kept && is_in_callback && cell->results[index].device != hvd::DeviceKind::host && !cell->is_ordered) {
    (void)fail(ErrorCode::invalid_argument,
               "the result is in device memory, where its operation may be under way; wait for the handle first");
    return nullptr;
  }
  if (!is_kept) {
    (void)fail(ErrorCode::invalid_argument, "the handle keeps no result of operation " + std::to_string(index));
    return nullptr;
  }
  return &cell->results[index];
}

hvd_status refuse_without_data(const hvd::runtime::KeptResult& result) {
  return fail(ErrorCode::invalid_argument, result.is_of_program
                                               ? "the program's own function (allocate) gave the memory of this result"
                                               : "the result was taken before (hvd_result_take); it can be taken once");
}

}  // namespace

extern "C" {

int hvd_poll(hvd_runtime* runtime, hvd_handle handle) {
  if (!usable(runtime)) return -1;
  hvd::runtime::HandleCell* cell = find_handle(runtime, handle);
  if (cell == nullptr) return -1;
  return Handles::is_done(*cell) ? 1 : 0;
}

hvd_status hvd_wait(hvd_runtime* runtime, hvd_handle handle, int64_t timeout_ms) {
  hvd::runtime::HandleCell* cell = nullptr;
  if (hvd_status status = wait_until_done("hvd_wait", runtime, handle, timeout_ms, cell); status != HVD_OK)
    return status;
  return outcome_of(*cell, runtime->runtime->order(*cell));
}

hvd_status hvd_wait_on(hvd_runtime* runtime, hvd_handle handle, void* stream, int64_t timeout_ms) {
  if (stream == nullptr)
    return fail(
        ErrorCode::invalid_argument,
        "hvd_wait_on needs the stream that waits for the operations; got null (hvd_get_device_facts() tells the "
        "handle of a device's default stream)");
  hvd::runtime::HandleCell* cell = nullptr;
  if (hvd_status status = wait_until_done("hvd_wait_on", runtime, handle, timeout_ms, cell); status != HVD_OK)
    return status;
  return outcome_of(*cell, runtime->runtime->order(*cell, hvd::Stream{stream}));
}

void hvd_release(hvd_runtime* runtime, hvd_handle handle) {
  if (!usable(runtime)) return;
  if (hvd::runtime::HandleCell* cell = find_handle(runtime, handle)) runtime->runtime->release(*cell);
}

hvd_status hvd_result_shape(hvd_runtime* runtime, hvd_handle handle, size_t index, int* dimensions,
                            int64_t shape[HVD_MAX_DIMENSIONS]) {
  if (!usable(runtime)) return why_unusable(runtime);
  const auto* result = find_result(runtime, handle, index);
  if (result == nullptr) return HVD_INVALID_ARGUMENT;
  *dimensions = static_cast<int>(result->shape.size());
  std::copy(result->shape.begin(), result->shape.end(), shape);
  return HVD_OK;
}

hvd_status hvd_result_splits(hvd_runtime* runtime, hvd_handle handle, size_t index, int64_t* splits, size_t count) {
  if (!usable(runtime)) return why_unusable(runtime);
  const auto* result = find_result(runtime, handle, index);
  if (result == nullptr) return HVD_INVALID_ARGUMENT;
  if (splits == nullptr || count != result->splits.size())
    return fail(ErrorCode::invalid_argument, "the result has rows of " + std::to_string(result->splits.size()) +
                                                 " ranks; room was given for " + std::to_string(count));
  std::copy(result->splits.begin(), result->splits.end(), splits);
  return HVD_OK;
}

hvd_status hvd_result_take(hvd_runtime* runtime, hvd_handle handle, size_t index, void** data, void** owner,
                           void (**free_data)(void* owner), hvd_device* device) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (data == nullptr || owner == nullptr || free_data == nullptr)
    return fail(ErrorCode::invalid_argument, "hvd_result_take needs places for the data, its owner and how to free it");
  auto* result = find_result(runtime, handle, index);
  if (result == nullptr) return HVD_INVALID_ARGUMENT;
  if (!result->data) return refuse_without_data(*result);
  if (device != nullptr) *device = static_cast<hvd_device>(result->device);
  const auto parts = result->data.release();
  *data = parts.data;
  *owner = parts.owner;
  *free_data = parts.free_owner;
  return HVD_OK;
}

hvd_status hvd_result_device(hvd_runtime* runtime, hvd_handle handle, size_t index, hvd_device* device, int* ordinal) {
  if (!usable(runtime)) return why_unusable(runtime);
  if (device == nullptr || ordinal == nullptr)
    return fail(ErrorCode::invalid_argument, "hvd_result_device needs places for the kind and the ordinal");
  const auto* result = find_result(runtime, handle, index);
  if (result == nullptr) return HVD_INVALID_ARGUMENT;
  *device = static_cast<hvd_device>(result->device);
  *ordinal = runtime->runtime->device(result->device)->ordinal();
  return HVD_OK;
}

hvd_status hvd_result_copy(hvd_runtime* runtime, hvd_handle handle, size_t index, void* destination, size_t bytes) {
  if (!usable(runtime)) return why_unusable(runtime);
  const auto* result = find_result(runtime, handle, index);
  if (result == nullptr) return HVD_INVALID_ARGUMENT;
  if (bytes != result->bytes)
    return fail(ErrorCode::invalid_argument, "the result has " + std::to_string(result->bytes) +
                                                 " bytes; room was given for " + std::to_string(bytes));
  if (!result->data) return refuse_without_data(*result);
  if (result->device != hvd::DeviceKind::host)
    return fail(ErrorCode::unsupported, std::string("the result is in ") + name_of(result->device) +
                                            " memory; take it over (hvd_result_take), and copy it on a stream");
  if (bytes > 0) std::memcpy(destination, result->data.data(), bytes);
  return HVD_OK;
}

}  // extern "C"
