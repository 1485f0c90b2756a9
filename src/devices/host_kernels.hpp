#pragma once
// Arithmetic on host memory, chosen once for what the CPU has. Everything here is a pure function of its arguments;
// the result of an element depends on the order of the sources alone, never on its place in the arrays or on the CPU.
#include <cstddef>
#include <cstdint>

#include "base/collective.hpp"
#include "base/data_type.hpp"

namespace hvd::devices {

struct Scale {
  double pre = 1.0;   // each source is multiplied by it and rounded to the type before the reduction
  double post = 1.0;  // the result is multiplied by it
};

// destinations[*][i] = post * (pre*sources[0][i] op pre*sources[1][i] op …), evaluated from left to right.
// f16 and bf16 are accumulated and post-scaled in f32 and rounded once, to nearest even. f32 is scaled by the factor
// cast to float; integers are scaled in double and truncated toward zero; a factor of exactly 1 changes nothing. bool:
// sum and max are "or", product and min are "and". Integer sums wrap. Min and max of a NaN are NaN. A destination may
// be equal to a source; other overlaps are not allowed. source_count >= 1, destination_count >= 1.
using ReduceKernel = void (*)(const void* const* sources, int source_count, void* const* destinations,
                              int destination_count, std::int64_t count, Scale scale);
ReduceKernel reduce_kernel(DataType dtype, ReduceOp op) noexcept;  // never null

// memcpy that bypasses the cache at the destination; for results that nobody reads soon (4 MB and more).
void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept;

// "AVX3" (AVX-512), "AVX2", "NEON" …: the instruction set in use, in the words of Google Highway.
const char* instruction_set() noexcept;

}  // namespace hvd::devices
