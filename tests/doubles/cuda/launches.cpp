// Entry points: images and the launches of their kernels.
#include <algorithm>
#include <cstring>

#include "state.hpp"

namespace hvd::doubles {
namespace {

constexpr std::uint32_t magic_of_machine_code = 0xba55ed50;

bool is_machine_code(const void* image) {
  std::uint32_t begin = 0;
  std::memcpy(&begin, image, sizeof begin);
  return begin == magic_of_machine_code;
}

// Whether this launch is one that a test lets fail when its turn comes.
Code failure_of_launch(const std::string& name) {
  Double& it = Double::it();
  std::lock_guard lock(it.mutex);
  auto& all = it.failing_kernels;
  for (auto entry = all.begin(); entry != all.end(); ++entry) {
    if ((!entry->first.empty() && entry->first != name) || entry->second.calls-- > 0) continue;
    const Code code = entry->second.code;
    all.erase(entry);
    return code;
  }
  return Code::success;
}

}  // namespace
}  // namespace hvd::doubles

using namespace hvd::cuda;
using hvd::doubles::Double;
using hvd::doubles::Engine;

HVD_EXPORT Code cuModuleLoadData(ModuleHandle* module, const void* image) {
  HVD_BEGIN(context);
  Double& it = Double::it();
  std::lock_guard lock(it.mutex);
  const auto refused = it.refused_images.find(hvd::doubles::is_machine_code(image) ? 0 : 1);
  if (refused != it.refused_images.end()) return refused->second;
  *module = new ModuleOfDriver;
  return Code::success;
}
HVD_EXPORT Code cuModuleUnload(ModuleHandle module) {
  HVD_BEGIN(context);
  delete module;
  return Code::success;
}
HVD_EXPORT Code cuModuleGetFunction(FunctionHandle* function, ModuleHandle, const char* name) {
  HVD_BEGIN(context);
  Double& it = Double::it();
  std::lock_guard lock(it.mutex);
  auto& found = it.functions[name];
  if (found == nullptr) found = hvd::doubles::own_kernel(name);
  *function = found.get();
  return found != nullptr ? Code::success : Code::not_found;
}

HVD_EXPORT Code cuLaunchKernel(FunctionHandle function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                               unsigned block_x, unsigned block_y, unsigned block_z, unsigned, StreamHandle stream,
                               void** parameters, void**) {
  HVD_BEGIN(context);
  Double& it = Double::it();
  const Engine::Stream queue = it.stream_of(stream);
  if (function == nullptr || queue == nullptr || it.engine().device_of(queue) != it.current_device())
    return Code::invalid_handle;
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_y != 1 || block_z != 1)
    return Code::invalid_value;
  const auto* begin = static_cast<const std::byte*>(parameters[0]);
  auto taken = std::make_shared<std::vector<std::byte>>(begin, begin + function->parameter_bytes);
  hvd::testing::Work work;
  work.label = function->name;
  function->uses(taken->data(), grid_x, work);
  const Code failure = hvd::doubles::failure_of_launch(function->name);
  work.run = [&it, function, taken, grid_x, failure] {
    if (failure != Code::success) {
      it.fail(failure);
      return hvd::testing::Outcome::failed;
    }
    function->run(taken->data(), grid_x);
    return hvd::testing::Outcome::done;
  };
  return hvd::doubles::queue(queue, std::move(work));
}
