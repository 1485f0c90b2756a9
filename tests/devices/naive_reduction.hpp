#pragma once
// The expected result of a reduction, computed element by element in the simplest way. The kernels are tested against
// it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/collective.hpp"
#include "base/data_type.hpp"
#include "devices/host/host_kernels.hpp"

namespace hvd::devices::naive {

struct F16 {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};
struct Bool {
  std::uint8_t byte;
};

inline float widen(F16 half) {
  const int exponent = (half.bits >> 10) & 31, mantissa = half.bits & 1023;
  double magnitude = 0;
  if (exponent == 31) {
    magnitude = mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else {
    magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  }
  return static_cast<float>((half.bits & 0x8000) != 0 ? -magnitude : magnitude);
}

inline float widen(Bf16 brain) {
  const std::uint32_t bits = static_cast<std::uint32_t>(brain.bits) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds to nearest even: scales the number until its last digit has the value 1. `digits` includes the leading digit.
inline double round_to(double magnitude, int digits, int least_exponent) {
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = 0.5…1 * 2^exponent
  const int last_place = std::max(exponent - digits, least_exponent);
  return std::ldexp(std::nearbyint(std::ldexp(magnitude, -last_place)), last_place);
}

inline void narrow(float value, F16& half) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) {
    half.bits = static_cast<std::uint16_t>(sign | 0x7E00);
    return;
  }
  const double magnitude = round_to(std::fabs(static_cast<double>(value)), 11, -24);
  unsigned bits = 0x7C00;
  if (magnitude < 65536.0) {
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    bits = magnitude < 0x1p-14 ? static_cast<unsigned>(std::ldexp(magnitude, 24))
                               : (static_cast<unsigned>(exponent + 14) << 10) +
                                     (static_cast<unsigned>(std::ldexp(magnitude, 11 - exponent)) & 1023U);
  }
  half.bits = static_cast<std::uint16_t>(sign | bits);
}

inline void narrow(float value, Bf16& brain) {
  if (std::isnan(value)) {
    brain.bits = 0x7FC0;
    return;
  }
  const double rounded = std::isinf(value) ? value : round_to(std::fabs(static_cast<double>(value)), 8, -133);
  const auto single = std::copysign(static_cast<float>(rounded), value);  // exact, or infinity if too large
  std::uint32_t bits = 0;
  std::memcpy(&bits, &single, sizeof bits);
  brain.bits = static_cast<std::uint16_t>(bits >> 16);
}

template <class T>
T combine(ReduceOp op, T left, T right) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::uint64_t;  // unsigned arithmetic wraps
    if (op == ReduceOp::sum) return static_cast<T>(static_cast<Wide>(left) + static_cast<Wide>(right));
    if (op == ReduceOp::product) return static_cast<T>(static_cast<Wide>(left) * static_cast<Wide>(right));
  } else {
    if (op == ReduceOp::sum) return left + right;
    if (op == ReduceOp::product) return left * right;
    if (std::isnan(left)) return left;
    if (std::isnan(right)) return right;
  }
  if (op == ReduceOp::min) return right < left ? right : left;
  return left < right ? right : left;
}

template <class T>
T truncate_to(double value) {
  if (std::isnan(value)) return 0;
  value = std::trunc(value);
  if (value < static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits)) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

// Reduces one element. `values` are the elements of the sources, in the order of the sources.
template <class T>
T reduce_element(const std::vector<T>& values, ReduceOp op, Scale scale) {
  if constexpr (std::is_same_v<T, Bool>) {
    bool result = values[0].byte != 0;
    for (const T& value : values) {
      const bool is_or = op == ReduceOp::sum || op == ReduceOp::max;
      result = is_or ? result || value.byte != 0 : result && value.byte != 0;
    }
    return {static_cast<std::uint8_t>(result ? 1 : 0)};
  } else if constexpr (std::is_integral_v<T>) {
    const auto scaled = [](T value, double factor) {
      return factor == 1.0 ? value : truncate_to<T>(static_cast<double>(value) * factor);
    };
    T result = scaled(values[0], scale.pre);
    for (std::size_t k = 1; k < values.size(); ++k) result = combine(op, result, scaled(values[k], scale.pre));
    return scaled(result, scale.post);
  } else if constexpr (std::is_floating_point_v<T>) {
    T result = values[0] * static_cast<T>(scale.pre);
    for (std::size_t k = 1; k < values.size(); ++k) {
      result = combine(op, result, static_cast<T>(values[k] * static_cast<T>(scale.pre)));
    }
    return result * static_cast<T>(scale.post);
  } else {
    const auto scaled = [&](T value) {
      if (scale.pre == 1.0) return widen(value);
      narrow(widen(value) * static_cast<float>(scale.pre), value);
      return widen(value);
    };
    float result = scaled(values[0]);
    for (std::size_t k = 1; k < values.size(); ++k) result = combine(op, result, scaled(values[k]));
    T stored{};
    narrow(result * static_cast<float>(scale.post), stored);
    return stored;
  }
}

// Equal bits, or both NaN: the compiler decides which of two NaNs an addition returns.
template <class T>
bool same(T left, T right) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(left) && std::isnan(right)) return true;
  } else if constexpr (!std::is_integral_v<T> && !std::is_same_v<T, Bool>) {
    if (std::isnan(widen(left)) && std::isnan(widen(right))) return true;
  }
  return std::memcmp(&left, &right, sizeof(T)) == 0;
}

}  // namespace hvd::devices::naive
