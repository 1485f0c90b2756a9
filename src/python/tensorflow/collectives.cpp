#include "python/tensorflow/collectives.hpp"

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "python/kernels/entered.hpp"
#include "python/tensorflow/definitions.hpp"
#include "python/tensorflow/run.hpp"

namespace hvd::tensorflow {

namespace {

std::string text_attribute(TF_OpKernelConstruction* construction, const char* name, const Status& status) {
  std::int32_t unused = 0, size = 0;
  tf.OpKernelConstruction_GetAttrSize(construction, name, &unused, &size, status.get());
  std::string text(status.ok() ? static_cast<std::size_t>(size) : 0, '\0');
  if (!text.empty()) tf.OpKernelConstruction_GetAttrString(construction, name, text.data(), text.size(), status.get());
  return text;
}

// True if the definition of the operation lists the attribute.
bool has_attribute(TF_OpKernelConstruction* construction, const char* name, const Status& status) {
  return status.ok() && tf.OpKernelConstruction_HasAttr(construction, name, status.get());
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
  if (has_attribute(construction, "reduce_op", status)) {
    node->what.reduce_op = static_cast<hvd_reduce_op>(number_attribute(construction, "reduce_op", status));
    node->what.prescale = factor_attribute(construction, "prescale_factor", status);
    node->what.postscale = factor_attribute(construction, "postscale_factor", status);
  }
  if (has_attribute(construction, "root_rank", status))
    node->what.root_rank = number_attribute(construction, "root_rank", status);
  if (!status.ok()) {
    tf.OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  return node.release();
}

void destroy(void* node) {
  delete static_cast<Node*>(node);
}

void begin(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done, const Place& place) {
  const Node& node = *static_cast<const Node*>(kernel);
  auto run = std::make_unique<Run>(node, context, Done(done), place);
  if (!run->prepare(node)) run->be_done();
  else if (run->members.empty()) run->be_done();
  else kernels::submit(std::move(run));
}

void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  begin(kernel, context, done, {});
}

// Written when the kernels of a device are registered, before they run.
StreamOf stream_of = nullptr;
hvd_device kind_of_streams = HVD_HOST;
bool may_lack_stream = false;  // kernels for CPUs run on none
std::string why_copied;

// Once on each node, since each may lack the library.
void warn_of_copies() {
  const kernels::Entered entered;
  hvd_world world{};
  world.struct_size = sizeof world;
  if (!entered || hvd_get_world(entered.runtime(), &world) != HVD_OK || world.local_rank != 0) return;
  const std::string text = "Horovod: on the node of rank " + std::to_string(world.rank) +
                           " tensors on GPUs are copied through the host's memory, which is slow: " + why_copied + "\n";
  std::fputs(text.c_str(), stderr);
}

void compute_on_copies(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  static std::once_flag told;
  std::call_once(told, &warn_of_copies);
  compute(kernel, context, done);
}

void compute_on_device(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  Place place;
  const bool has_stream = stream_of(context, &place.stream, &place.ordinal) == 1;
  if (has_stream) place.kind = kind_of_streams;
  if (place.stream != nullptr || (!has_stream && may_lack_stream)) {
    begin(kernel, context, done, place);
    return;
  }
  const Node& node = *static_cast<const Node*>(kernel);
  Run run(node, context, Done(done), place);
  run.fail(code_failed_precondition,
           "tensor '" + node.name +
               "': found no stream of the GPU on which TensorFlow runs this operation, so the library for its streams "
               "does not fit; python -m horovod.tensorflow.build --remove lets tensors go through the host's memory");
  run.be_done();
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

// Whether TensorFlow keeps this argument in the host's memory for a kernel that works on a device.
bool is_for_host(const std::string& argument) {
  return argument == "splits" || argument == "received_splits";
}

void register_kernel(const Collective& collective, const char* device, int priority, ComputeAsync function) {
  const Definition& definition = collective.definition;
  TF_KernelBuilder* builder = tf.NewAsyncKernelBuilder(definition.name, device, collective.create, function, &destroy);
  tf.KernelBuilder_Priority(builder, priority);
  for (const auto& arguments : {definition.inputs, definition.outputs})
    for (int i = 0; i < 2 && arguments[i] != nullptr; ++i) {
      std::string argument = arguments[i];
      argument.resize(argument.find(':'));
      if (function != &compute_on_device || is_for_host(argument))
        tf.KernelBuilder_HostMemory(builder, argument.c_str());
    }
  const Status status;
  tf.RegisterKernelBuilder(definition.name, builder, status.get());  // which takes the builder
  check(status, definition.name);
}

}  // namespace

void register_collectives() {
  for (const Collective& collective : collectives) {
    define(collective.definition);
    register_kernel(collective, "CPU", 0, &compute);
  }
}

void register_for_device(const char* device, int priority, hvd_device kind, StreamOf streams, const char* reason) {
  if (streams != nullptr) {
    stream_of = streams;
    kind_of_streams = kind;
    may_lack_stream = std::string_view(device) == "CPU";
  } else {
    why_copied = reason;
  }
  for (const Collective& collective : collectives)
    register_kernel(collective, device, priority, streams == nullptr ? &compute_on_copies : &compute_on_device);
}

}  // namespace hvd::tensorflow
