#include "base/gpu_makes.hpp"

#include <array>
#include <optional>
#include <utility>

namespace hvd {
namespace {

constexpr const char* cuda_visibility[] = {"CUDA_VISIBLE_DEVICES"};
constexpr const char* rocm_visibility[] = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"};

constexpr std::optional<GpuMake> row_of_make(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::host: return std::nullopt;
    case DeviceKind::cuda:
      return GpuMake{.kind = kind,
                     .plugin = "cuda",
                     .title = "CUDA",
                     .owner = "NVIDIA's",
                     .visibility = cuda_visibility,
                     .dlpack_type = 2,      // kDLCUDA
                     .default_stream = 1};  // CU_STREAM_LEGACY
    case DeviceKind::rocm:
      return GpuMake{.kind = kind,
                     .plugin = "rocm",
                     .title = "ROCm",
                     .owner = "AMD's",
                     .visibility = rocm_visibility,
                     .dlpack_type = 10,     // kDLROCM
                     .default_stream = 0};  // HIP has long known its default stream by null alone
  }
  return std::nullopt;
}

// A kind without a row does not compile.
template <std::size_t... Number>
consteval auto all_makes(std::index_sequence<Number...>) {
  return std::array{row_of_make(static_cast<DeviceKind>(Number + 1)).value()...};
}
constexpr auto makes = all_makes(std::make_index_sequence<device_kind_count - 1>());

}  // namespace

std::span<const GpuMake> gpu_makes() {
  return makes;
}

const GpuMake* gpu_make_of(DeviceKind kind) {
  for (const GpuMake& make : makes)
    if (make.kind == kind) return &make;
  return nullptr;
}

std::string visibility_variables() {
  std::string names;
  for (const GpuMake& make : makes) names += (names.empty() ? "" : " or ") + std::string(make.visibility.front());
  return names;
}

}  // namespace hvd
