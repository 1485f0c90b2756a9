#include "python/tensorflow/collectives.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/kernels/use.hpp"
#include "python/tensorflow/definitions.hpp"
#include "python/tensorflow/done.hpp"

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

// What a kernel knows from the node of the graph.
struct Node {
  std::string name;
  int process_set = 0;
  kernels::Description what;
  bool is_group = false;
};

std::string text_attribute(TF_OpKernelConstruction* construction, const char* name, const Status& status) {
  std::int32_t unused = 0, size = 0;
  tf.OpKernelConstruction_GetAttrSize(construction, name, &unused, &size, status.get());
  std::string text(status.ok() ? static_cast<std::size_t>(size) : 0, '\0');
  if (!text.empty()) tf.OpKernelConstruction_GetAttrString(construction, name, text.data(), text.size(), status.get());
  return text;
}

int number_attribute(TF_OpKernelConstruction* construction, const char* name, const Status& status) {
  std::int32_t number = 0;
  if (status.ok()) tf.OpKernelConstruction_GetAttrInt32(construction, name, &number, status.get());
  return number;
}

double factor_attribute(TF_OpKernelConstruction* construction, const char* name, const Status& status) {
  float factor = 1;
  if (status.ok()) tf.OpKernelConstruction_GetAttrFloat(construction, name, &factor, status.get());
  return static_cast<double>(factor);
}

template <hvd_verb verb, bool is_group>
void* create(TF_OpKernelConstruction* construction) {
  const Status status;
  auto node = std::make_unique<Node>();
  node->what.verb = verb;
  node->is_group = is_group;
  node->name = text_attribute(construction, "tensor_name", status);
  node->process_set = number_attribute(construction, "process_set_id", status);
  if constexpr (verb == HVD_ALLREDUCE || verb == HVD_REDUCESCATTER) {
    node->what.reduce_op = static_cast<hvd_reduce_op>(number_attribute(construction, "reduce_op", status));
    node->what.prescale = factor_attribute(construction, "prescale_factor", status);
    node->what.postscale = factor_attribute(construction, "postscale_factor", status);
  }
  if constexpr (verb == HVD_BROADCAST) node->what.root_rank = number_attribute(construction, "root_rank", status);
  if (!status.ok()) {
    tf.OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  return node.release();
}

void destroy(void* node) {
  delete static_cast<Node*>(node);
}

struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const { tf.DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, DeleteTensor>;

alignas(64) char nothing[64];  // where tensors without elements are

void* memory_of(const Tensor& tensor) {
  void* memory = tf.TensorElementCount(tensor.get()) == 0 ? nullptr : tf.TensorData(tensor.get());
  return memory == nullptr ? nothing : memory;
}

// One run of a kernel.
class Run final : public kernels::Use {
 public:
  Run(const Node& node, TF_OpKernelContext* context, Done done)
      : Use(node.process_set), context_(context), done_(std::move(done)) {
    what_ = node.what;
  }

  // Takes the inputs and makes the outputs whose shape is known. Returns false if something is wrong with them; fail()
  // was called then.
  bool prepare(const Node& node);

  void* allocate(std::size_t member, int dimensions, const std::int64_t* shape, std::size_t bytes) override;
  void take(std::size_t member, const hvd_completion& completion) override;
  void end(const kernels::Ending& ending) override;
  bool fail(Code code, const std::string& message);
  void fail_because_of(hvd_status status, const std::string& message);
  void be_done();

 private:
  bool add(const std::string& name, int index);
  bool take_splits();
  Tensor input(int index);
  Tensor output(int index, int type, const std::int64_t* shape, int dimensions, std::size_t bytes);

  TF_OpKernelContext* const context_;
  const Done done_;
  kernels::Description what_;
  std::vector<Tensor> inputs_, outputs_;
  bool has_failed_ = false;
};

// The iterations of a loop may run at the same time and begin in any order, so each has names of its own.
std::string name_of(const Node& node, TF_OpKernelContext* context) {
  if (tf.GetFrameId == nullptr || tf.GetIterId == nullptr) return node.name;
  const std::uint64_t frame = tf.GetFrameId(context);
  if (frame == 0) return node.name;
  return node.name + " in " + std::to_string(frame) + " iteration " + std::to_string(tf.GetIterId(context));
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
  member.input = memory_of(tensor);
  outputs_.emplace_back();
  if (what_.verb == HVD_ALLREDUCE || what_.verb == HVD_BROADCAST) {
    outputs_.back() = output(index, type, member.what.shape.data(), static_cast<int>(member.what.shape.size()),
                             tf.TensorByteSize(tensor.get()));
    if (has_failed_) return false;
    member.output = memory_of(outputs_.back());
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

void Run::take(std::size_t, const hvd_completion& completion) {
  if (what_.verb != HVD_ALLTOALL || has_failed_) return;
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

// TensorFlow hands on the code and the text alone, and other errors have the same code. So failures of the job are
// counted before TensorFlow hears of them.
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

void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  const Node& node = *static_cast<const Node*>(kernel);
  auto run = std::make_unique<Run>(node, context, Done(done));
  if (!run->prepare(node)) run->be_done();
  else if (run->members.empty()) run->be_done();
  else kernels::submit(std::move(run));
}

#define HVD_TYPES "{uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double, bool}"
constexpr const char* type = "T: " HVD_TYPES;
constexpr const char* types = "T: list(" HVD_TYPES ") >= 1";
constexpr const char* reduction = "reduce_op: int";
constexpr const char* before = "prescale_factor: float = 1.0";
constexpr const char* after = "postscale_factor: float = 1.0";
constexpr const char* root = "root_rank: int";
#undef HVD_TYPES

struct Collective {
  Definition definition;
  Create create;
};

const Collective collectives[] = {
    {{"HorovodAllreduce",
      {"tensor: T"},
      {"sum: T"},
      {type, name_attribute, set_attribute, reduction, before, after},
      &shape_of_input},
     &create<HVD_ALLREDUCE, false>},
    {{"HorovodGroupedAllreduce",
      {"tensors: T"},
      {"sum: T"},
      {types, name_attribute, set_attribute, reduction, before, after},
      &shape_of_input},
     &create<HVD_ALLREDUCE, true>},
    {{"HorovodAllgather", {"tensor: T"}, {"output: T"}, {type, name_attribute, set_attribute}, &other_rows},
     &create<HVD_ALLGATHER, false>},
    {{"HorovodGroupedAllgather", {"tensors: T"}, {"output: T"}, {types, name_attribute, set_attribute}, &other_rows},
     &create<HVD_ALLGATHER, true>},
    {{"HorovodBroadcast", {"tensor: T"}, {"output: T"}, {type, name_attribute, set_attribute, root}, &shape_of_input},
     &create<HVD_BROADCAST, false>},
    {{"HorovodAlltoall",
      {"tensor: T", "splits: int32"},
      {"output: T", "received_splits: int32"},
      {type, name_attribute, set_attribute},
      &other_rows_and_splits},
     &create<HVD_ALLTOALL, false>},
    {{"HorovodReducescatter",
      {"tensor: T"},
      {"output: T"},
      {type, name_attribute, set_attribute, reduction, before, after},
      &other_rows},
     &create<HVD_REDUCESCATTER, false>},
    {{"HorovodGroupedReducescatter",
      {"tensors: T"},
      {"output: T"},
      {types, name_attribute, set_attribute, reduction, before, after},
      &other_rows},
     &create<HVD_REDUCESCATTER, true>}};

void register_kernel(const Collective& collective, const char* device) {
  const Definition& definition = collective.definition;
  TF_KernelBuilder* builder = tf.NewAsyncKernelBuilder(definition.name, device, collective.create, &compute, &destroy);
  for (const auto& arguments : {definition.inputs, definition.outputs})
    for (int i = 0; i < 2 && arguments[i] != nullptr; ++i) {
      const std::string argument = arguments[i];
      tf.KernelBuilder_HostMemory(builder, argument.substr(0, argument.find(':')).c_str());
    }
  const Status status;
  tf.RegisterKernelBuilder(definition.name, builder, status.get());  // which takes the builder
  check(status, definition.name);
}

}  // namespace

void register_collectives() {
  for (const Collective& collective : collectives) {
    define(collective.definition);
    // TensorFlow's C interface gives kernels no stream of a GPU, so tensors come through the host's memory.
    for (const char* device : {"CPU", "GPU"}) register_kernel(collective, device);
  }
}

std::uint64_t failures() {
  return failure_count;
}

}  // namespace hvd::tensorflow
