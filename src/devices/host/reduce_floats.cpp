// The kernels for f32 and f64. They reduce and scale in the type itself; products and weighted sums are computed in
// double.
#include "devices/host/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "devices/host/reduce_floats.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "devices/host/adasum_loops.inl"
#include "devices/host/kernel_table.hpp"
#include "devices/host/reduce_loops.inl"

HWY_BEFORE_NAMESPACE();
namespace hvd::devices::HWY_NAMESPACE {

template <class T, class Op>
void reduce_floats(const void* const* sources, int source_count, void* const* destinations, int destination_count,
                   std::int64_t count, Scale scale) {
  if (count <= 0) return;
  reduce_scaled_or_not<PlainKit<T>, Op>(sources, source_count, destinations, destination_count,
                                        static_cast<std::size_t>(count), scale);
}

template <class T>
Products products_of_floats(const void* left, const void* right, std::int64_t count) {
  PartialProducts sums;
  add_products(static_cast<const T*>(left), static_cast<const T*>(right), static_cast<std::size_t>(count), sums);
  return sums.total();
}

template <class T>
void weighted_sum_of_floats(const void* left, const void* right, void* to, std::int64_t count, Weights weights) {
  add_weighted(static_cast<const T*>(left), static_cast<const T*>(right), static_cast<T*>(to),
               static_cast<std::size_t>(count), weights);
}

template <class T>
void add_kernels_of(DataType dtype, KernelTable& table) noexcept {
  table.at(dtype, ReduceOp::sum) = &reduce_floats<T, Sum>;
  table.at(dtype, ReduceOp::min) = &reduce_floats<T, Minimum>;
  table.at(dtype, ReduceOp::max) = &reduce_floats<T, Maximum>;
  table.at(dtype, ReduceOp::product) = &reduce_floats<T, Product>;
  table.products[static_cast<std::size_t>(dtype)] = &products_of_floats<T>;
  table.weighted_sum[static_cast<std::size_t>(dtype)] = &weighted_sum_of_floats<T>;
}

void add_float_kernels(KernelTable& table) noexcept {
  add_kernels_of<float>(DataType::f32, table);
  add_kernels_of<double>(DataType::f64, table);
}

}  // namespace hvd::devices::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
