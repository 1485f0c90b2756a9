#include "mpi/prepared_averages.hpp"

#include <cstdint>

namespace hvd::benchmark {

std::vector<hvd_start_arguments> prepare_averages(hvd_runtime* runtime, const Tensors& tensors, const std::string& name,
                                                  const std::function<void(hvd_status)>& check) {
  std::vector<hvd_start_arguments> all;
  for (const Tensors::Tensor& tensor : tensors.all()) {
    std::string op_name = name + "." + std::to_string(all.size());
    auto extent = static_cast<std::int64_t>(tensor.count);
    hvd_op_description description{};
    description.struct_size = sizeof description;
    description.name = op_name.c_str();
    description.verb = HVD_ALLREDUCE;
    description.dtype = HVD_FLOAT32;
    description.reduce_op = HVD_AVERAGE;
    description.dimensions = 1;
    description.shape = &extent;
    description.prescale = description.postscale = 1.0;
    hvd_start_arguments arguments = hvd_use_of(nullptr, tensor.data, tensor.data);
    check(hvd_prepare(runtime, &description, &arguments.op));
    all.push_back(arguments);
  }
  return all;
}

}  // namespace hvd::benchmark
