#pragma once
// The makes of GPU, a row for each kind of device memory other than the host's: what must be known of a make outside of
// its own folders. How its visible GPUs are found is a row of topology/visible_gpus.
#include <cstdint>
#include <span>
#include <string>

#include "base/tensor_view.hpp"

namespace hvd {

struct GpuMake {
  DeviceKind kind;
  const char* plugin;  // libhorovod_<plugin>.so works on its memory; devices/<plugin>.cpp opens it
  const char* title;   // "CUDA", for people
  const char* owner;   // "NVIDIA's"
  // The environment variables that limit which GPUs a program sees on this machine. The first one is the usual one.
  std::span<const char* const> visibility;
  int dlpack_type;  // DLDeviceType of DLPack
  // The handle of the default stream, for which frameworks also have null. Null stands for no stream here. 0: no such
  // handle is known.
  std::uintptr_t default_stream;
};

inline constexpr int dlpack_host = 1;  // kDLCPU

// In the order of DeviceKind.
std::span<const GpuMake> gpu_makes();
// Null for the host.
const GpuMake* gpu_make_of(DeviceKind kind);
// "CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES", the usual variable of each make, for messages.
std::string visibility_variables();

}  // namespace hvd
