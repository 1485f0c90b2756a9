#include "devices/cuda/plugin.hpp"

#include "devices/cuda/gpu.hpp"

extern "C" __attribute__((visibility("default"))) const void* horovod_cuda_plugin() {
  using hvd::devices::cuda::Gpu;
  using hvd::devices::cuda::Plugin;
  static const Plugin plugin{hvd::posix::plugin_stamp(sizeof(Plugin)), &Gpu::open};
  return &plugin;
}
