#include "topology/visible_gpus.hpp"

#include <utility>

#include "base/gpu_makes.hpp"
#include "native/cuda/visible.hpp"

namespace hvd::topology {
namespace {

using Find = VisibleGpus (*)(const Environment& environment, const std::string& root);

VisibleGpus find_cuda(const Environment& environment, const std::string& root) {
  cuda::Visible found = cuda::visible(environment, root);
  return {std::move(found.gpus), std::move(found.doubt), found.has_driver};
}

// Null for the host, and for makes whose GPUs nobody finds yet.
Find find_of(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::host: return nullptr;
    case DeviceKind::cuda: return find_cuda;
    case DeviceKind::rocm: return nullptr;
  }
  return nullptr;
}

}  // namespace

bool finds_gpus_of(DeviceKind kind) {
  return find_of(kind) != nullptr;
}

VisibleGpus visible_gpus(const Environment& environment) {
  const std::string root = environment.get("HOROVOD_GPU_ROOT").value_or("");
  VisibleGpus visible;
  for (const GpuMake& make : gpu_makes()) {
    if (!finds_gpus_of(make.kind)) continue;
    VisibleGpus found = find_of(make.kind)(environment, root);
    if (found.machine_has_gpus && visible.gpus.empty()) visible = std::move(found);
  }
  return visible;
}

}  // namespace hvd::topology
