#pragma once
// The types of elements and their conversion. All results are those of devices/host: halves are rounded once, to
// nearest even; integers are scaled in double, truncated toward zero, and saturate; the bits of a NaN are any.
#include <cstdint>

#include "devices/kernels/memory.hpp"
#include "devices/kernels/place.hpp"

namespace hvd::devices {

struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};

#if HVD_ON_DEVICE

HVD_DEVICE float widen(F16 half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits));
  return value;
}
HVD_DEVICE void narrow(float value, F16& half) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
}

#else

HVD_DEVICE float widen(F16 half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000) << 16, magnitude = half.bits & 0x7FFF;
  constexpr std::uint32_t rebias = (127 - 15) << 23;
  std::uint32_t bits = (magnitude << 13) + rebias;
  if (magnitude > 0x7BFF) bits += rebias;  // infinity or NaN: all exponent bits are 1
  if (magnitude < 0x0400) bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(magnitude) * 0x1p-24F);
  return __builtin_bit_cast(float, sign | bits);
}
HVD_DEVICE void narrow(float value, F16& half) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFFFFFF;
  std::uint32_t result = 0;
  if (magnitude > 0x7F800000) {
    result = 0x7E00;
  } else if (magnitude >= 0x47800000) {  // from 65536 on
    result = 0x7C00;
  } else if (magnitude < 113U << 23) {  // subnormal: adding 0.5 rounds it, because the last place of 0.5 is 2^-24
    const float rounded = __builtin_bit_cast(float, magnitude) + 0.5F;
    result = __builtin_bit_cast(std::uint32_t, rounded) - __builtin_bit_cast(std::uint32_t, 0.5F);
  } else {
    result = (magnitude + 0xFFF + (magnitude >> 13 & 1) - ((127U - 15U) << 23)) >> 13;
  }
  half.bits = static_cast<std::uint16_t>(sign | result);
}

#endif

HVD_DEVICE float widen(BF16 brain) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(brain.bits) << 16);
}
HVD_DEVICE void narrow(float value, BF16& brain) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  brain.bits = static_cast<std::uint16_t>(value == value ? (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 : 0x7FC0);
}

HVD_DEVICE float widen(float value) {
  return value;
}
HVD_DEVICE void narrow(float value, float& result) {
  result = value;
}
HVD_DEVICE double widen(double value) {
  return value;
}
HVD_DEVICE void narrow(double value, double& result) {
  result = value;
}
HVD_DEVICE void narrow(double value, float& result) {
  result = static_cast<float>(value);
}

// Rounds to a float that further rounding to fewer digits treats as the double: if digits are lost, it takes the
// neighbour nearer to zero and sets its last bit.
HVD_DEVICE float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || value != value) return nearest;
  auto bits = __builtin_bit_cast(std::uint32_t, nearest);
  if (value > 0 ? back > value : back < value) --bits;
  return __builtin_bit_cast(float, bits | 1);
}
HVD_DEVICE void narrow(double value, F16& result) {
  narrow(round_to_odd(value), result);
}
HVD_DEVICE void narrow(double value, BF16& result) {
  narrow(round_to_odd(value), result);
}

// The type in which a conversion is computed: the wider of the two, at least float.
template <typename From, typename To>
struct WideOf {
  using Type = float;
};
template <typename From>
struct WideOf<From, double> {
  using Type = double;
};
template <typename To>
struct WideOf<double, To> {
  using Type = double;
};
template <>
struct WideOf<double, double> {
  using Type = double;
};

// A treatment of elements: Source, Target, how many loads a thread may have under way before its registers are full,
// and apply() with the factor of the list.
template <typename From, typename To>
struct Convert {
  using Source = From;
  using Target = To;
  static constexpr unsigned most_slots = 4;
  static HVD_DEVICE To apply(From value, double scale) {
    using Wide = typename WideOf<From, To>::Type;
    const Wide scaled = static_cast<Wide>(widen(value)) * static_cast<Wide>(scale);
    To result;
    narrow(scaled, result);
    return result;
  }
};

namespace cuda {

// A number out of range becomes the nearest number in range, and NaN becomes 0.
template <typename T>
HVD_DEVICE T to_integer(double value) {
  constexpr bool is_signed = static_cast<T>(-1) < static_cast<T>(0);
  constexpr auto ones = static_cast<T>(~static_cast<Bits<T>>(0));
  constexpr T greatest = is_signed ? static_cast<T>(static_cast<Bits<T>>(ones) >> 1) : ones;
  constexpr T least = is_signed ? static_cast<T>(-greatest - 1) : static_cast<T>(0);
  if (value != value) return 0;
  if constexpr (sizeof(T) == 8) {
    if (value >= (is_signed ? 0x1p63 : 0x1p64)) return greatest;
    return value <= static_cast<double>(least) ? least : static_cast<T>(value);
  } else {
    if (value >= static_cast<double>(greatest)) return greatest;
    if (value <= static_cast<double>(least)) return least;
    if constexpr (sizeof(T) == 4) return static_cast<T>(value);
    return static_cast<T>(static_cast<std::int32_t>(value));
  }
}

template <typename T>
struct ScaleInteger {
  using Source = T;
  using Target = T;
  static constexpr unsigned most_slots = 2;
  static HVD_DEVICE T apply(T value, double scale) { return to_integer<T>(static_cast<double>(value) * scale); }
};

}  // namespace cuda
}  // namespace hvd::devices
