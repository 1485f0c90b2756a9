// The kernels as the device's functions. Compiled for the device alone: by nvcc to SASS and by clang, without any
// toolkit of CUDA, to PTX.
#if defined(__clang__) && defined(__CUDA__)
#define __global__ __attribute__((global))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__
#endif

#include "devices/kernels/adasum.hpp"
#include "devices/kernels/kernel_names.hpp"
#include "devices/kernels/move.hpp"
#include "devices/kernels/signal.hpp"

namespace hvd::devices::cuda {

HVD_DEVICE Place here() {
  Place place;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(place.block));
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(place.thread));
  asm volatile("mov.u32 %0, %%nctaid.x;" : "=r"(place.blocks));
  place.threads = threads_per_block;
  return place;
}

#define HVD_KERNEL(name, Parameters, function)                                               \
  extern "C" __global__ void __launch_bounds__(threads_per_block, blocks_per_multiprocessor) \
      hvd_##name(const __grid_constant__ Parameters list) {                                  \
    (function)(list, here());                                                                \
  }
#define HVD_KERNEL_WITH_BARRIER(name, Parameters, before, after)                             \
  extern "C" __global__ void __launch_bounds__(threads_per_block, blocks_per_multiprocessor) \
      hvd_##name(const __grid_constant__ Parameters list) {                                  \
    before(list, here());                                                                    \
    asm volatile("bar.sync 0;" ::: "memory");                                                \
    after(list, here());                                                                     \
  }
HVD_CUDA_KERNELS(HVD_KERNEL, HVD_KERNEL_WITH_BARRIER)

}  // namespace hvd::devices::cuda
