#pragma once
// The kernels, loaded into a context.
#include <array>
#include <memory>
#include <span>
#include <string>

#include "devices/cuda/health.hpp"
#include "devices/kernels/kernel_names.hpp"
#include "devices/kernels/lists.hpp"
#include "native/cuda/owners.hpp"

namespace hvd::devices::cuda {

class KernelTable {
 public:
  // Loads the machine code for this chip, else the PTX, which the driver compiles.
  explicit KernelTable(std::shared_ptr<const hvd::cuda::Context> context);

  // Why there are no kernels; empty if there are.
  const std::string& lack() const noexcept { return lack_; }

  // Launches a kernel with this list, which is read during the call.
  Status launch(Kernel kernel, std::uint32_t blocks, hvd::cuda::StreamHandle stream, void* list, Health& health) const;

 private:
  hvd::cuda::Code load(const void* image);

  const std::shared_ptr<const hvd::cuda::Context> context_;
  hvd::cuda::OwnModule module_;
  std::array<hvd::cuda::FunctionHandle, std::size(kernel_facts)> functions_{};
  std::string lack_;
};

}  // namespace hvd::devices::cuda
