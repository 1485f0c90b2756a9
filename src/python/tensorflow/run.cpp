#include "python/tensorflow/run.hpp"

#include <atomic>
#include <optional>
#include <utility>

namespace hvd::tensorflow {

namespace {

std::atomic<std::uint64_t> failure_count = 0;

Code code_of(hvd_status status) {
  switch (status) {
    case HVD_OK: return code_ok;
    case HVD_INVALID_ARGUMENT: return code_invalid_argument;
    case HVD_MISMATCH:
    case HVD_NOT_INITIALIZED: return code_failed_precondition;
    case HVD_UNSUPPORTED: return code_aborted;
    case HVD_OUT_OF_MEMORY: return code_resource_exhausted;
    default: return code_unknown;
  }
}

std::optional<hvd_dtype> dtype_of(int type) {
  switch (type) {
    case type_float: return HVD_FLOAT32;
    case type_double: return HVD_FLOAT64;
    case type_int32: return HVD_INT32;
    case type_uint8: return HVD_UINT8;
    case type_int16: return HVD_INT16;
    case type_int8: return HVD_INT8;
    case type_int64: return HVD_INT64;
    case type_bool: return HVD_BOOL;
    case type_bfloat16: return HVD_BFLOAT16;
    case type_uint16: return HVD_UINT16;
    case type_half: return HVD_FLOAT16;
    default: return std::nullopt;
  }
}

std::size_t size_of(hvd_dtype dtype) {
  switch (dtype) {
    case HVD_FLOAT64:
    case HVD_UINT64:
    case HVD_INT64: return 8;
    case HVD_FLOAT32:
    case HVD_UINT32:
    case HVD_INT32: return 4;
    case HVD_FLOAT16:
    case HVD_BFLOAT16:
    case HVD_INT16:
    case HVD_UINT16: return 2;
    case HVD_BOOL:
    case HVD_INT8:
    case HVD_UINT8: break;
  }
  return 1;
}

alignas(64) char nothing[64];  // where tensors without elements are

void* memory_of(const Tensor& tensor, const void* stream = nullptr) {
  void* memory = tf.TensorElementCount(tensor.get()) == 0 ? nullptr : tf.TensorData(tensor.get());
  return memory == nullptr && stream == nullptr ? nothing : memory;
}

// The iterations of a loop may run at the same time and begin in any order, so each has names of its own.
std::string name_of(const Node& node, TF_OpKernelContext* context) {
  if (tf.GetFrameId == nullptr || tf.GetIterId == nullptr) return node.name;
  const std::uint64_t frame = tf.GetFrameId(context);
  if (frame == 0) return node.name;
  return node.name + " in " + std::to_string(frame) + " iteration " + std::to_string(tf.GetIterId(context));
}

}  // namespace

Run::Run(const Node& node, TF_OpKernelContext* context, Done done, const Place& place)
    : Use(node.process_set), context_(context), done_(std::move(done)) {
  what_ = node.what;
  what_.device = place.kind;
  what_.ordinal = place.ordinal;
  stream = place.stream;
}

bool Run::prepare(const Node& node) {
  const std::string name = name_of(node, context_);
  const int count = what_.verb == HVD_ALLTOALL ? 1 : tf.NumInputs(context_);
  members.reserve(static_cast<std::size_t>(count));
  if (node.is_group) what_.group = name;
  const std::string suffix = "of" + std::to_string(count);
  for (int i = 0; i < count; ++i)
    if (!add(node.is_group ? name + '_' + std::to_string(i + 1) + suffix : name, i)) return false;
  return what_.verb != HVD_ALLTOALL || take_splits();
}

Tensor Run::input(int index) {
  TF_Tensor* tensor = nullptr;
  const Status status;
  tf.GetInput(context_, index, &tensor, status.get());
  Tensor owner(tensor);
  if (!status.ok()) fail(code_invalid_argument, status.message());
  return owner;
}

Tensor Run::output(int index, int type, const std::int64_t* shape, int dimensions, std::size_t bytes) {
  const Status status;
  Tensor tensor(tf.AllocateOutput(context_, index, type, shape, dimensions, bytes, status.get()));
  if (status.ok() && tensor != nullptr) return tensor;
  fail(code_resource_exhausted, status.message());
  return nullptr;
}

bool Run::add(const std::string& name, int index) {
  Tensor tensor = input(index);
  if (has_failed_) return false;
  const int type = tf.TensorType(tensor.get());
  const std::optional<hvd_dtype> dtype = dtype_of(type);
  if (!dtype) return fail(code_invalid_argument, "tensor '" + name + "' has a type that Horovod does not communicate");
  kernels::Member& member = members.emplace_back();
  member.name = name;
  member.what = what_;
  member.what.dtype = *dtype;
  for (int i = 0; i < tf.NumDims(tensor.get()); ++i) member.what.shape.push_back(tf.Dim(tensor.get(), i));
  member.input = memory_of(tensor, stream);
  outputs_.emplace_back();
  if (what_.verb == HVD_ALLREDUCE || what_.verb == HVD_BROADCAST) {
    outputs_.back() = output(index, type, member.what.shape.data(), static_cast<int>(member.what.shape.size()),
                             tf.TensorByteSize(tensor.get()));
    if (has_failed_) return false;
    member.output = memory_of(outputs_.back(), stream);
  }
  inputs_.push_back(std::move(tensor));
  return true;
}

bool Run::take_splits() {
  const Tensor tensor = input(1);
  if (has_failed_) return false;
  if (tf.NumDims(tensor.get()) != 1 || tf.TensorType(tensor.get()) != type_int32)
    return fail(code_invalid_argument, "alltoall of '" + members[0].name +
                                           "': expected splits of type int32 and one "
                                           "dimension, found " +
                                           std::to_string(tf.NumDims(tensor.get())) + " dimensions");
  const auto* splits = static_cast<const std::int32_t*>(tf.TensorData(tensor.get()));
  members[0].splits.assign(splits, splits + tf.TensorElementCount(tensor.get()));
  return true;
}

void* Run::allocate(std::size_t member, int dimensions, const std::int64_t* shape, std::size_t bytes) {
  outputs_[member] = output(static_cast<int>(member), tf.TensorType(inputs_[member].get()), shape, dimensions, bytes);
  return outputs_[member] == nullptr ? nullptr : memory_of(outputs_[member]);
}

// The memory of a result on a device is the runtime's. TensorFlow gives it back when nothing uses the tensor any more.
struct Kept {
  void* owner = nullptr;
  void (*free_data)(void* owner) = nullptr;

  static void give_back(void*, std::size_t, void* kept) {
    const std::unique_ptr<Kept> self(static_cast<Kept*>(kept));
    self->free_data(self->owner);
  }
};

bool Run::take_kept(std::size_t member, const hvd_completion& completion) {
  int dimensions = 0;
  std::int64_t shape[HVD_MAX_DIMENSIONS];
  void* data = nullptr;
  auto kept = std::make_unique<Kept>();
  hvd_status status = hvd_result_shape(completion.runtime, completion.handle, completion.index, &dimensions, shape);
  if (status == HVD_OK)
    status = hvd_result_take(completion.runtime, completion.handle, completion.index, &data, &kept->owner,
                             &kept->free_data, nullptr);
  if (status != HVD_OK) {
    fail_because_of(status, hvd_last_error());
    return false;
  }
  std::size_t bytes = size_of(members[member].what.dtype);
  for (int i = 0; i < dimensions; ++i) bytes *= static_cast<std::size_t>(shape[i]);
  outputs_[member].reset(tf.NewTensor(tf.TensorType(inputs_[member].get()), shape, dimensions, data, bytes,
                                      &Kept::give_back, kept.release()));
  const Status set;
  tf.SetOutput(context_, static_cast<int>(member), outputs_[member].get(), set.get());
  return set.ok() || fail(code_unknown, set.message());
}

void Run::take(std::size_t member, const hvd_completion& completion) {
  if (has_failed_) return;
  const bool is_kept = stream != nullptr && members[member].output == nullptr && what_.verb != HVD_ALLREDUCE &&
                       what_.verb != HVD_BROADCAST;
  if (is_kept && !take_kept(member, completion)) return;
  if (what_.verb != HVD_ALLTOALL) return;
  int size = 0;
  hvd_status status = hvd_process_set(completion.runtime, process_set, nullptr, &size, nullptr, 0);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(size));
  if (status == HVD_OK)
    status = hvd_result_splits(completion.runtime, completion.handle, completion.index, rows.data(), rows.size());
  if (status != HVD_OK) {
    fail_because_of(status, hvd_last_error());
    return;
  }
  const auto count = static_cast<std::int64_t>(rows.size());
  const Tensor splits = output(1, type_int32, &count, 1, rows.size() * sizeof(std::int32_t));
  if (splits == nullptr) return;
  auto* into = static_cast<std::int32_t*>(memory_of(splits));
  for (std::size_t i = 0; i < rows.size(); ++i) into[i] = static_cast<std::int32_t>(rows[i]);
}

bool Run::fail(Code code, const std::string& message) {
  if (!has_failed_) tf.OpKernelContext_Failure(context_, Status(code, message).get());
  has_failed_ = true;
  return false;
}

// TensorFlow passes on only the code and the text, and other errors have the same code. So failures of the job are
// counted before TensorFlow is told of them.
void Run::fail_because_of(hvd_status status, const std::string& message) {
  const Code code = code_of(status);
  if (code == code_unknown) ++failure_count;
  fail(code, message);
}

// TensorFlow may destroy the context, and reuse the memory, as soon as it is told.
void Run::be_done() {
  inputs_.clear();
  outputs_.clear();
  done_();
}

void Run::end(const kernels::Ending& ending) {
  if (ending.status != HVD_OK) fail_because_of(ending.status, ending.message);
  be_done();
}

std::uint64_t failures() {
  return failure_count;
}

}  // namespace hvd::tensorflow
