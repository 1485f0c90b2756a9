// NVIDIA's GPUs. The plugin is opened, and the driver started, for the first tensor on a GPU: a program may choose the
// GPU after the start, and one without tensors there needs no context.
#include <memory>
#include <string>
#include <utility>

#include "base/gpu_makes.hpp"
#include "devices/cuda/plugin.hpp"
#include "devices/device.hpp"
#include "native/cuda/visible.hpp"
#include "native/posix/files/settings_files.hpp"

namespace hvd::devices {
namespace {

// Only Devices::open() makes this one's device, so no other function is called before.
class WhenNeeded final : public Device {
 public:
  WhenNeeded() : Device(DeviceKind::cuda, -1) {}

  Result<Memory> allocate(std::size_t bytes, Where where, Stream user) override {
    return gpu_->allocate(bytes, where, user);
  }
  Result<std::shared_ptr<void>> stream() override { return gpu_->stream(); }
  Status move(Stream stream, std::span<const Move> moves, const Treatment& treatment) override {
    return gpu_->move(stream, moves, treatment);
  }
  Result<Event> record(Stream stream) override { return gpu_->record(stream); }
  Status wait(Stream stream, Event event) override { return gpu_->wait(stream, event); }
  Result<bool> query(Event event, posix::WaitWord* wake) override { return gpu_->query(event, wake); }

 private:
  Status open_library(int ordinal) override {
    const Environment environment = posix::environment_with_files();
    auto plugin = posix::open_plugin<cuda::Plugin>(gpu_make_of(kind())->plugin, environment);
    if (!plugin) return plugin.error();
    auto opened = (*plugin)->open(ordinal, environment);
    if (!opened) return opened.error();
    gpu_ = std::move(*opened);
    return {};
  }

  std::unique_ptr<Device> gpu_;
};

}  // namespace

// Null where this process sees no GPU, or where there is no plugin. The driver may know GPUs of which the system tells
// nothing.
std::unique_ptr<Device> make_cuda() {
  const Environment environment = posix::environment_with_files();
  const std::string root = environment.get("HOROVOD_GPU_ROOT").value_or("");
  const hvd::cuda::Visible visible = hvd::cuda::visible(environment, root);
  const bool may_be_there = environment.has("HOROVOD_CUDA_DRIVER") || visible.are_hidden || !visible.gpus.empty();
  if (!may_be_there || posix::plugin_path(gpu_make_of(DeviceKind::cuda)->plugin, environment).empty()) return nullptr;
  return std::make_unique<WhenNeeded>();
}

}  // namespace hvd::devices
