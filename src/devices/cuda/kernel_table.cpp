#include "devices/cuda/kernel_table.hpp"

#include <utility>

#include "devices/kernels/image.hpp"

namespace hvd::devices::cuda {

using hvd::cuda::Code;
using hvd::cuda::Context;

KernelTable::KernelTable(std::shared_ptr<const Context> context) : context_(std::move(context)) {
  const Image found = image();
  if (!found) {
    lack_ = "this Horovod was built without NVIDIA's compilers, so it has no kernels for GPUs";
    return;
  }
  const Context::Use use(*context_);
  Code code = Code::no_binary_for_gpu;
  if (!found.machine_code.empty()) code = load(found.machine_code.data());
  if (code != Code::success) code = load(found.ptx);
  if (code != Code::success) lack_ = context_->error(code, "the kernels of Horovod cannot be loaded").message;
}

Code KernelTable::load(const void* image) {
  hvd::cuda::ModuleHandle handle = nullptr;
  if (const Code code = context_->driver().module_load(&handle, image); code != Code::success) return code;
  hvd::cuda::OwnModule module(context_, handle);
  for (std::size_t i = 0; i < functions_.size(); ++i)
    if (const Code code = context_->driver().module_function(&functions_[i], handle, kernel_facts[i].name);
        code != Code::success)
      return code;
  module_ = std::move(module);
  return Code::success;
}

Status KernelTable::launch(Kernel kernel, std::uint32_t blocks, hvd::cuda::StreamHandle stream, void* list,
                           Health& health) const {
  void* parameters[] = {list};
  const Code code = context_->driver().launch(functions_[static_cast<std::size_t>(kernel)], blocks, 1, 1,
                                              threads_per_block, 1, 1, 0, stream, parameters, nullptr);
  return health.check(*context_, code, facts_of(kernel).name);
}

}  // namespace hvd::devices::cuda
