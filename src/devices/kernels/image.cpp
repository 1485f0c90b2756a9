#include "devices/kernels/image.hpp"

#if defined(HVD_CUDA_PTX)
// Labels in image.S.
extern "C" {
__attribute__((visibility("hidden"))) extern const std::byte hvd_cuda_machine_code[];
__attribute__((visibility("hidden"))) extern const std::byte hvd_cuda_machine_code_end[];
__attribute__((visibility("hidden"))) extern const char hvd_cuda_ptx[];
}
#endif

namespace hvd::devices::cuda {

Image image() noexcept {
#if defined(HVD_CUDA_PTX)
  return {{hvd_cuda_machine_code, hvd_cuda_machine_code_end}, hvd_cuda_ptx};
#elif defined(HVD_CUDA_NAMES_ALONE)
  return {{}, ".version 7.8  // a build with sanitizers runs on a double of a GPU, which knows kernels by their names"};
#else
  return {};
#endif
}

}  // namespace hvd::devices::cuda
