#pragma once
// The functions of libhorovod_cuda.so: posix::open_plugin<cuda::Plugin>("cuda", environment).
#include <memory>

#include "base/settings/environment.hpp"
#include "devices/device.hpp"
#include "native/posix/plugins/plugin.hpp"

namespace hvd::devices::cuda {

struct Plugin {
  posix::PluginStamp stamp;
  // Opens the driver and the primary context of the GPU that programs call `ordinal`. This takes memory of the GPU and
  // up to a second, so it happens at the first tensor there. The thread's current context stays as it was.
  Result<std::unique_ptr<Device>> (*open)(int ordinal, const Environment& environment);
};

}  // namespace hvd::devices::cuda
