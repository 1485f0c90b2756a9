#include "topology/visible_gpus.hpp"

#include <utility>

#include "native/cuda/visible.hpp"

namespace hvd::topology {

VisibleGpus visible_gpus(const Environment& environment) {
  cuda::Visible found = cuda::visible(environment, environment.get("HOROVOD_GPU_ROOT").value_or(""));
  return {std::move(found.gpus), std::move(found.doubt), found.has_driver};
}

}  // namespace hvd::topology
