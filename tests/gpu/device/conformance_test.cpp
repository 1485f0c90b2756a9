// The GPU of this machine is a device as every other (devices/every_device.hpp). HOROVOD_CUDA_DRIVER may name a double
// of the driver.
#include "devices/cuda/gpu.hpp"
#include "devices/every_device.hpp"

namespace hvd::devices {

namespace {

std::unique_ptr<Device> gpu_of_this_machine() {
  auto gpu = cuda::Gpu::open(0, Environment::of_this_process());
  EXPECT_TRUE(gpu) << gpu.error().message;
  return std::move(*gpu);
}

}  // namespace

std::vector<Named> all_devices() {
  return {{"cuda", &gpu_of_this_machine}};
}

}  // namespace hvd::devices
