#pragma once
// Collectives in their simplest form, without care for speed, on values that every element type holds exactly. The
// results of the algorithms are compared with these.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/bytes.hpp"
#include "base/collective.hpp"

namespace hvd::testing {

template <typename T>
double load_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

// Reads an element as a number, and stores a number as an element. Only for numbers that the type holds exactly;
// integers wrap.
inline double load(DataType dtype, const std::byte* at) {
  switch (dtype) {
    case DataType::boolean:
    case DataType::u8: return load_as<std::uint8_t>(at);
    case DataType::i8: return load_as<std::int8_t>(at);
    case DataType::u16: return load_as<std::uint16_t>(at);
    case DataType::i16: return load_as<std::int16_t>(at);
    case DataType::i32: return load_as<std::int32_t>(at);
    case DataType::i64: return load_as<std::int64_t>(at);
    case DataType::f32: return load_as<float>(at);
    case DataType::f64: return load_as<double>(at);
    case DataType::u32: return load_as<std::uint32_t>(at);
    case DataType::u64: return load_as<std::uint64_t>(at);
    case DataType::f16:
    case DataType::bf16: break;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  if ((bits & 0x7fff) == 0) return 0.0;
  double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (dtype == DataType::bf16) return sign * std::ldexp(1.0 + (bits & 0x7f) / 128.0, (bits >> 7 & 0xff) - 127);
  return sign * std::ldexp(1.0 + (bits & 0x3ff) / 1024.0, (bits >> 10 & 0x1f) - 15);
}

inline void store(DataType dtype, double value, std::byte* at) {
  auto put = [at](auto converted) { std::memcpy(at, &converted, sizeof converted); };
  auto integer = static_cast<std::int64_t>(value);
  switch (dtype) {
    case DataType::boolean: return put(static_cast<std::uint8_t>(value != 0));
    case DataType::u8: return put(static_cast<std::uint8_t>(integer));
    case DataType::i8: return put(static_cast<std::int8_t>(integer));
    case DataType::u16: return put(static_cast<std::uint16_t>(integer));
    case DataType::i16: return put(static_cast<std::int16_t>(integer));
    case DataType::i32: return put(static_cast<std::int32_t>(integer));
    case DataType::i64: return put(integer);
    case DataType::f32: return put(static_cast<float>(value));
    case DataType::f64: return put(value);
    case DataType::u32: return put(static_cast<std::uint32_t>(integer));
    case DataType::u64: return put(static_cast<std::uint64_t>(integer));
    case DataType::f16:
    case DataType::bf16: break;
  }
  if (value == 0) return put(std::uint16_t{0});
  int exponent = 0;
  double fraction = std::frexp(std::fabs(value), &exponent) * 2 - 1;
  bool is_f16 = dtype == DataType::f16;
  auto bits = is_f16 ? static_cast<unsigned>(exponent + 14) << 10 | static_cast<unsigned>(fraction * 1024)
                     : static_cast<unsigned>(exponent + 126) << 7 | static_cast<unsigned>(fraction * 128);
  put(static_cast<std::uint16_t>((value < 0 ? 0x8000u : 0u) | bits));
}

// The reference: reads every input, from the lowest rank to the highest.
inline double naive_reduction(const Collective& collective, const std::vector<Buffer>& inputs, std::size_t element) {
  double total = 0;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    double value =
        load(collective.dtype, inputs[rank].data() + element * size_of(collective.dtype)) * collective.prescale;
    switch (collective.op) {
      case ReduceOp::sum: total = total + value; break;
      case ReduceOp::min: total = rank == 0 ? value : std::fmin(total, value); break;
      case ReduceOp::max: total = rank == 0 ? value : std::fmax(total, value); break;
      case ReduceOp::product: total = rank == 0 ? value : total * value; break;
    }
  }
  return total * collective.postscale;
}

inline double epsilon_of(DataType dtype) {
  return dtype == DataType::f16    ? 0x1p-10
         : dtype == DataType::bf16 ? 0x1p-7
         : dtype == DataType::f32  ? 0x1p-23
                                   : 0x1p-52;
}

// Adasum of one tensor in double, never rounded. So many consecutive ranks give their mean. Means are combined to
// pairs, pairs to groups of four, and so on.
inline std::vector<double> naive_adasum(const Collective& collective, const std::vector<Buffer>& inputs,
                                        std::size_t first, std::size_t count, std::size_t ranks_of_mean = 1) {
  std::vector<std::vector<double>> groups(inputs.size() / ranks_of_mean, std::vector<double>(count));
  for (std::size_t rank = 0; rank < inputs.size(); ++rank)
    for (std::size_t at = 0; at < count; ++at)
      groups[rank / ranks_of_mean][at] +=
          load(collective.dtype, inputs[rank].data() + (first + at) * size_of(collective.dtype)) * collective.prescale /
          static_cast<double>(ranks_of_mean);
  for (; groups.size() > 1; groups.resize(groups.size() / 2))
    for (std::size_t group = 0; group < groups.size() / 2; ++group) {
      std::vector<double>&a = groups[2 * group], &b = groups[2 * group + 1], sum(count);
      long double dot = 0, a_norm = 0, b_norm = 0;  // double would lose digits over a million products
      const double least = std::sqrt(std::numeric_limits<double>::min());
      for (std::size_t at = 0; at < count; ++at) {
        dot += static_cast<long double>(a[at]) * b[at];
        a_norm += static_cast<long double>(a[at]) * a[at];
        b_norm += static_cast<long double>(b[at]) * b[at];
      }
      double of_a = a_norm < least ? 1 : static_cast<double>(1 - dot / (2 * a_norm));
      double of_b = b_norm < least ? 1 : static_cast<double>(1 - dot / (2 * b_norm));
      for (std::size_t at = 0; at < count; ++at) sum[at] = of_a * a[at] + of_b * b[at];
      groups[group] = std::move(sum);
    }
  for (double& value : groups.front()) value *= collective.postscale;
  return groups.front();
}

}  // namespace hvd::testing
