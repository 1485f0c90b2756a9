#include "api/checkpoint_collective.hpp"

#include "api/answer.hpp"

namespace hvd::api {
namespace {

hvd_status start_one(hvd_runtime* runtime, hvd_verb verb, const std::string& name, hvd_dtype dtype, void* data,
                     std::int64_t count, hvd_reduce_op op, hvd_handle& handle) {
  hvd_op_description description{};
  description.struct_size = sizeof description;
  description.name = name.c_str();
  description.verb = verb;
  description.dtype = dtype;
  description.reduce_op = op;
  description.dimensions = 1;
  description.shape = &count;
  description.prescale = description.postscale = 1.0;
  description.transient = 1;
  hvd_op* prepared = nullptr;
  if (hvd_status status = hvd_prepare(runtime, &description, &prepared); status != HVD_OK) return status;
  hvd_start_arguments use = hvd_use_of(prepared, data, data);
  const hvd_status status = hvd_start(runtime, &use, 1, &handle);
  if (status != HVD_OK) hvd_op_release(runtime, prepared);  // it belongs to its handle only once it is started
  return status;
}

hvd_status run_one(hvd_runtime* runtime, hvd_verb verb, const std::string& name, hvd_dtype dtype, void* data,
                   std::int64_t count, hvd_reduce_op op = HVD_SUM) {
  hvd_handle handle = 0;
  hvd_status status = start_one(runtime, verb, name, dtype, data, count, op, handle);
  if (status != HVD_OK) return status;
  status = hvd_wait(runtime, handle, -1);
  LastError reason = last_error();
  hvd_release(runtime, handle);
  last_error() = std::move(reason);
  return status;
}

}  // namespace

bool is_rank_0(hvd_runtime* runtime) {
  hvd_world world{};
  world.struct_size = sizeof world;
  return runtime == nullptr || (hvd_get_world(runtime, &world) == HVD_OK && world.rank == 0);
}

hvd_status share_bytes(hvd_runtime* runtime, const char* name, Buffer& bytes) {
  if (runtime == nullptr) return HVD_OK;
  auto size = static_cast<std::int64_t>(bytes.size());
  std::string prefix = std::string("checkpoint.") + name;
  hvd_status status = run_one(runtime, HVD_BROADCAST, prefix + ".size", HVD_INT64, &size, 1);
  if (status != HVD_OK) return status;
  bytes.resize(static_cast<std::size_t>(size));
  if (size == 0) return HVD_OK;
  return run_one(runtime, HVD_BROADCAST, prefix, HVD_UINT8, bytes.data(), size);
}

hvd_status share_outcome(hvd_runtime* runtime, hvd_status status) {
  if (runtime == nullptr) return status;
  Buffer bytes;
  if (is_rank_0(runtime)) {
    ByteWriter writer(bytes);
    writer.put(static_cast<std::int32_t>(status));
    const LastError reason = status == HVD_OK ? LastError{} : last_error();
    writer.put_string(reason.text);
    writer.put_string(reason.id);
  }
  if (hvd_status sent = share_bytes(runtime, "outcome", bytes); sent != HVD_OK) return sent;
  ByteReader reader(bytes);
  status = static_cast<hvd_status>(reader.get<std::int32_t>());
  LastError reason;
  reason.text = reader.get_string();
  reason.id = reader.get_string();
  if (status != HVD_OK) last_error() = std::move(reason);
  return status;
}

hvd_status agree_on(hvd_runtime* runtime, std::uint32_t number, const std::string& what) {
  if (runtime == nullptr) return HVD_OK;
  std::int64_t greatest_and_least[2] = {number, -static_cast<std::int64_t>(number)};
  hvd_status status =
      run_one(runtime, HVD_ALLREDUCE, "checkpoint.agreement", HVD_INT64, greatest_and_least, 2, HVD_MAX);
  if (status != HVD_OK) return status;
  if (greatest_and_least[0] == -greatest_and_least[1]) return HVD_OK;
  return fail(ErrorCode::mismatch, what);
}

Broadcasts::~Broadcasts() {
  static_cast<void>(wait());  // the caller may free the memory afterwards
}

hvd_status Broadcasts::start(const std::string& name, void* data, std::size_t bytes) {
  if (runtime_ == nullptr || bytes == 0) return HVD_OK;
  hvd_handle handle = 0;
  hvd_status status = start_one(runtime_, HVD_BROADCAST, "checkpoint" + name, HVD_UINT8, data,
                                static_cast<std::int64_t>(bytes), HVD_SUM, handle);
  if (status == HVD_OK) handles_.push_back(handle);
  return status;
}

hvd_status Broadcasts::wait() {
  hvd_status first = HVD_OK;
  LastError reason = last_error();
  for (hvd_handle handle : handles_) {
    hvd_status status = hvd_wait(runtime_, handle, -1);
    if (first == HVD_OK && status != HVD_OK) {
      first = status;
      reason = last_error();
    }
    hvd_release(runtime_, handle);
  }
  handles_.clear();
  last_error() = std::move(reason);
  return first;
}

}  // namespace hvd::api
