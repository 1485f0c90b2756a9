// The kernels for integers and bool. Sums and products wrap. Scaling is done in double and truncates toward zero.
#include "devices/host/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "devices/host/reduce_integers.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "devices/host/kernel_table.hpp"
#include "devices/host/reduce_loops.inl"

HWY_BEFORE_NAMESPACE();
namespace hvd::devices::HWY_NAMESPACE {

// Truncates toward zero. A number out of range becomes the nearest number in range, and NaN becomes 0.
template <class T>
HWY_INLINE T to_integer(double value) {
  constexpr T least = std::numeric_limits<T>::min(), greatest = std::numeric_limits<T>::max();
  value = value == value ? value : 0.0;
  if constexpr (sizeof(T) < sizeof(std::int64_t)) {  // doubles hold these limits exactly, and vectors can be used
    using Whole = std::conditional_t<std::is_same_v<T, std::uint32_t>, std::int64_t, std::int32_t>;
    value = value < static_cast<double>(greatest) ? value : static_cast<double>(greatest);
    value = value > static_cast<double>(least) ? value : static_cast<double>(least);
    return static_cast<T>(static_cast<Whole>(value));
  } else {
    if (value >= (std::is_signed_v<T> ? 0x1p63 : 0x1p64)) return greatest;
    return value <= static_cast<double>(least) ? least : static_cast<T>(value);
  }
}

template <class T>
HWY_INLINE void scale_block(T* block, std::size_t count, double factor) {
  if (factor == 1.0) return;
  for (std::size_t i = 0; i < count; ++i) block[i] = to_integer<T>(static_cast<double>(block[i]) * factor);
}

// Works in blocks that fit into the cache: scales a copy of each source, reduces the copies by the unscaled kernel,
// scales the result and stores it.
template <class T>
HWY_NOINLINE void reduce_scaled(ReduceKernel unscaled, const void* const* sources, int source_count,
                                void* const* destinations, int destination_count, std::size_t count, Scale scale) {
  constexpr std::size_t block = 2048 / sizeof(T);
  T total[block], next[block];
  for (std::size_t index = 0; index < count; index += block) {
    const std::size_t n = std::min(block, count - index);
    const auto take = [&](T* to, int k) HWY_ATTR {
      std::memcpy(to, static_cast<const unsigned char*>(sources[k]) + index * sizeof(T), n * sizeof(T));
      scale_block(to, n, scale.pre);
    };
    take(total, 0);
    for (int k = 1; k < source_count; ++k) {
      take(next, k);
      const void* const pair[] = {total, next};
      void* const result[] = {total};
      unscaled(pair, 2, result, 1, static_cast<std::int64_t>(n), Scale{});
    }
    scale_block(total, n, scale.post);
    for (int k = 0; k < destination_count; ++k) {
      std::memcpy(static_cast<unsigned char*>(destinations[k]) + index * sizeof(T), total, n * sizeof(T));
    }
  }
}

// Treats T as the type Loop, because signed and unsigned numbers are added and multiplied in the same way.
template <class Loop, class Op>
void reduce_unscaled(const void* const* sources, int source_count, void* const* destinations, int destination_count,
                     std::int64_t count, Scale) {
  if (count <= 0) return;
  reduce<PlainKit<Loop>, Op, Scaling::none>(sources, source_count, destinations, destination_count,
                                            static_cast<std::size_t>(count), {});
}

template <class T, class Loop, class Op>
void reduce_integers(const void* const* sources, int source_count, void* const* destinations, int destination_count,
                     std::int64_t count, Scale scale) {
  if (scale.pre == 1.0 && scale.post == 1.0) {
    reduce_unscaled<Loop, Op>(sources, source_count, destinations, destination_count, count, scale);
  } else if (count > 0) {
    reduce_scaled<T>(&reduce_unscaled<Loop, Op>, sources, source_count, destinations, destination_count,
                     static_cast<std::size_t>(count), scale);
  }
}

template <class T>
void add_kernels_of(DataType dtype, KernelTable& table) noexcept {
  using Loop = std::make_unsigned_t<T>;
  table.at(dtype, ReduceOp::sum) = &reduce_integers<T, Loop, Sum>;
  table.at(dtype, ReduceOp::min) = &reduce_integers<T, T, Minimum>;
  table.at(dtype, ReduceOp::max) = &reduce_integers<T, T, Maximum>;
  table.at(dtype, ReduceOp::product) = &reduce_integers<T, Loop, Product>;
}

void add_integer_kernels(KernelTable& table) noexcept {
  add_kernels_of<std::uint8_t>(DataType::u8, table);
  add_kernels_of<std::int8_t>(DataType::i8, table);
  add_kernels_of<std::uint16_t>(DataType::u16, table);
  add_kernels_of<std::int16_t>(DataType::i16, table);
  add_kernels_of<std::int32_t>(DataType::i32, table);
  add_kernels_of<std::int64_t>(DataType::i64, table);
  add_kernels_of<std::uint32_t>(DataType::u32, table);
  add_kernels_of<std::uint64_t>(DataType::u64, table);
  // In a bool every byte except 0 is true.
  for (std::size_t i = 0; i < reduce_op_count; ++i) {
    const auto op = static_cast<ReduceOp>(i);
    const bool is_or = row_of(op)->on_boolean == ReduceOp::max;
    table.at(DataType::boolean, op) =
        is_or ? &reduce_unscaled<std::uint8_t, Maximum> : &reduce_unscaled<std::uint8_t, Minimum>;
  }
}

}  // namespace hvd::devices::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
