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

// Of two vectors of floats, for Adasum: added up in double, in an order that depends on the count alone.
struct Products {
  double dot = 0, left = 0, right = 0;  // of left and right, of left with itself, of right with itself
};
using ProductsKernel = Products (*)(const void* left, const void* right, std::int64_t count);
ProductsKernel products_kernel(DataType dtype) noexcept;  // null for types that are not floating

// to[i] = weights.left * left[i] + weights.right * right[i], computed in double and rounded to the type. `to` may be
// equal to either source.
struct Weights {
  double left = 1, right = 1;
};
using WeightedSumKernel = void (*)(const void* left, const void* right, void* to, std::int64_t count, Weights weights);
WeightedSumKernel weighted_sum_kernel(DataType dtype) noexcept;  // null for types that are not floating

// memcpy that bypasses the cache at the destination; for results that nobody reads soon (4 MB and more).
void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept;

// "AVX3" (AVX-512), "AVX2", "NEON" …: the instruction set in use, in the words of Google Highway.
const char* instruction_set() noexcept;

}  // namespace hvd::devices
