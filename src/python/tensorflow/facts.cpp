#include "python/tensorflow/facts.hpp"

#include <memory>
#include <string>

#include "python/kernels/entered.hpp"
#include "python/tensorflow/definitions.hpp"

namespace hvd::tensorflow {

namespace {

// What HorovodSize and so on return. Negative: the status is not ok.
using Fact = hvd_status (*)(hvd_runtime*, int set, std::int32_t& value);

template <std::int32_t hvd_world::*member>
hvd_status of_world(hvd_runtime* runtime, int, std::int32_t& value) {
  hvd_world world{};
  world.struct_size = sizeof world;
  const hvd_status status = hvd_get_world(runtime, &world);
  value = world.*member;
  return status;
}

hvd_status size_of_set(hvd_runtime* runtime, int set, std::int32_t& value) {
  return hvd_process_set(runtime, set, nullptr, &value, nullptr, 0);
}

hvd_status is_in_set(hvd_runtime* runtime, int set, std::int32_t& value) {
  const hvd_status status = hvd_process_set(runtime, set, &value, nullptr, nullptr, 0);
  value = value >= 0 ? 1 : 0;
  return status;
}

void* take_set(TF_OpKernelConstruction* construction) {
  auto set = std::make_unique<std::int32_t>(0);
  const Status status;
  tf.OpKernelConstruction_GetAttrInt32(construction, "process_set_id", set.get(), status.get());
  if (!status.ok()) tf.OpKernelConstruction_Failure(construction, status.get());
  return set.release();
}

void destroy_set(void* set) {
  delete static_cast<std::int32_t*>(set);
}

void fail(TF_OpKernelContext* context, Code code, const std::string& message) {
  tf.OpKernelContext_Failure(context, Status(code, message).get());
}

template <Fact fact>
void compute_fact(void* set, TF_OpKernelContext* context) {
  std::int32_t value = 0;
  {
    const kernels::Entered entered;
    if (!entered) return fail(context, code_failed_precondition, entered.message());
    const int number = set == nullptr ? 0 : *static_cast<const std::int32_t*>(set);
    if (fact(entered.runtime(), number, value) != HVD_OK) return fail(context, code_invalid_argument, hvd_last_error());
  }
  const Status status;
  TF_Tensor* output = tf.AllocateOutput(context, 0, type_int32, nullptr, 0, sizeof value, status.get());
  if (!status.ok()) return tf.OpKernelContext_Failure(context, status.get());
  *static_cast<std::int32_t*>(tf.TensorData(output)) = value;
  tf.DeleteTensor(output);
}

struct FactKernel {
  const char* name;
  bool has_set;
  Compute compute;
};

const FactKernel facts[] = {{"HorovodSize", true, &compute_fact<&size_of_set>},
                            {"HorovodProcessSetIncluded", true, &compute_fact<&is_in_set>},
                            {"HorovodRank", false, &compute_fact<&of_world<&hvd_world::rank>>},
                            {"HorovodLocalRank", false, &compute_fact<&of_world<&hvd_world::local_rank>>},
                            {"HorovodLocalSize", false, &compute_fact<&of_world<&hvd_world::local_size>>}};

}  // namespace

void register_facts() {
  for (const FactKernel& fact : facts) {
    define({fact.name, {}, {"output: int32"}, {fact.has_set ? set_attribute : nullptr}, &scalar});
    for (const char* device : {"CPU", "GPU"}) {
      TF_KernelBuilder* builder = tf.NewKernelBuilder(fact.name, device, fact.has_set ? &take_set : nullptr,
                                                      fact.compute, fact.has_set ? &destroy_set : nullptr);
      tf.KernelBuilder_HostMemory(builder, "output");
      const Status status;
      tf.RegisterKernelBuilder(fact.name, builder, status.get());
      check(status, fact.name);
    }
  }
}

}  // namespace hvd::tensorflow
