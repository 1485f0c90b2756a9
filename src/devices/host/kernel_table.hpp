#pragma once
// The reduction kernels of one instruction set. The files reduce_*.cpp fill in a table, and host_kernels.cpp chooses
// one.
#include <array>
#include <cstddef>
#include <span>

#include "base/data_type.hpp"
#include "base/reduce_op.hpp"
#include "devices/host/host_kernels.hpp"

namespace hvd::devices {

struct KernelTable {
  const char* instruction_set = "";
  std::array<std::array<ReduceKernel, reduce_op_count>, data_type_count> reduce{};
  std::array<ProductsKernel, data_type_count> products{};         // null for types that are not floating
  std::array<WeightedSumKernel, data_type_count> weighted_sum{};  // null for types that are not floating

  ReduceKernel& at(DataType dtype, ReduceOp op) noexcept {
    return reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
  }
  ReduceKernel at(DataType dtype, ReduceOp op) const noexcept {
    return reduce[static_cast<std::size_t>(dtype)][static_cast<std::size_t>(op)];
  }
};

// Returns one table for each instruction set that was compiled and that this CPU has. The best one comes first. All
// give the same bits.
std::span<const KernelTable> kernel_tables() noexcept;

}  // namespace hvd::devices
