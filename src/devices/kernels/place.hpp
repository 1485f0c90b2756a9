#pragma once
// What a kernel is written in. The same source is compiled by nvcc and clang, for the device alone, and by the host's
// compiler for tests. So a kernel is a plain function of its parameters and of its place. It uses no shared memory, no
// shuffles and no atomics. Where it needs a barrier it consists of two functions.
#include <cstdint>

#if defined(__CUDA_ARCH__)
#define HVD_ON_DEVICE 1
#else
#define HVD_ON_DEVICE 0
#endif

// HVD_DEVICE begins the declaration of a function of a kernel. HVD_UNROLL stands before a loop of constant length.
#if HVD_ON_DEVICE
#define HVD_DEVICE __attribute__((device)) __attribute__((always_inline)) inline
#define HVD_UNROLL _Pragma("unroll")
#else
#define HVD_DEVICE inline
#define HVD_UNROLL
#endif

namespace hvd::devices::cuda {

struct Place {
  std::uint32_t block, thread;    // this one
  std::uint32_t blocks, threads;  // all of them; threads: of one block
};

}  // namespace hvd::devices::cuda
