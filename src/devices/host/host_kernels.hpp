#pragma once
// Arithmetic on host memory. The code is chosen once for the CPU. All functions are pure. The result for an element
// depends only on the order of the sources, never on its place in the arrays or on the CPU.
#include <cstddef>
#include <cstdint>

#include "base/collective.hpp"
#include "base/data_type.hpp"

namespace hvd::devices {

struct Scale {
  double pre = 1.0;   // each source is multiplied by this and rounded to the type before the reduction
  double post = 1.0;  // the result is multiplied by this
};

// destinations[*][i] = post * (pre*sources[0][i] op pre*sources[1][i] op …), evaluated from left to right.
// f16 and bf16 are accumulated and post-scaled in f32 and rounded once, to nearest even. The factors of f32 are cast
// to float. Integers are scaled in double and truncated toward zero. A factor of exactly 1 changes nothing. For bool,
// sum and max are "or", product and min are "and". Integer sums wrap. Min and max of a NaN are NaN. A destination may
// be equal to a source; other overlaps are not allowed. source_count >= 1, destination_count >= 1.
using ReduceKernel = void (*)(const void* const* sources, int source_count, void* const* destinations,
                              int destination_count, std::int64_t count, Scale scale);
ReduceKernel reduce_kernel(DataType dtype, ReduceOp op) noexcept;  // there is a kernel for every type and operation

// Sums of products of two vectors of floats, for Adasum. They are added in double, in an order that depends only on the
// number of elements.
struct Products {
  double dot = 0, left = 0, right = 0;  // left times right, left times left, right times right
};
using ProductsKernel = Products (*)(const void* left, const void* right, std::int64_t count);
ProductsKernel products_kernel(DataType dtype) noexcept;  // null for types that are not floating

// Computes to[i] = weights.left * left[i] + weights.right * right[i] in double and rounds to the type. `to` may be
// equal to either source.
struct Weights {
  double left = 1, right = 1;
};
using WeightedSumKernel = void (*)(const void* left, const void* right, void* to, std::int64_t count, Weights weights);
WeightedSumKernel weighted_sum_kernel(DataType dtype) noexcept;  // null for types that are not floating

// A memcpy whose stores bypass the cache. For results of 4 MB and more that are not read soon.
void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept;

// Returns the instruction set in use, with Google Highway's name: "AVX3" (AVX-512), "AVX2", "NEON" …
const char* instruction_set() noexcept;

}  // namespace hvd::devices
