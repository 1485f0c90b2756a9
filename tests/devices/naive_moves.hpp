#pragma once
// Lists of moves, and what they should give, computed element by element in the simplest way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "devices/moves.hpp"
#include "devices/naive_reduction.hpp"

namespace hvd::devices::naive {

// Calls visit with a value of the type that the tests use for a type of elements.
template <typename Visit>
void with_type(DataType type, Visit visit) {
  switch (type) {
    case DataType::boolean: return visit(Bool{});
    case DataType::u8: return visit(std::uint8_t{});
    case DataType::i8: return visit(std::int8_t{});
    case DataType::u16: return visit(std::uint16_t{});
    case DataType::i16: return visit(std::int16_t{});
    case DataType::i32: return visit(std::int32_t{});
    case DataType::i64: return visit(std::int64_t{});
    case DataType::f16: return visit(F16{});
    case DataType::bf16: return visit(Bf16{});
    case DataType::f32: return visit(float{});
    case DataType::f64: return visit(double{});
    case DataType::u32: return visit(std::uint32_t{});
    case DataType::u64: return visit(std::uint64_t{});
  }
}

template <typename T>
inline constexpr bool is_half = std::is_same_v<T, F16> || std::is_same_v<T, Bf16>;

// Rounds a double once: to the digits of the half type, which a float holds exactly.
template <typename To>
To round_once(double value) {
  To result{};
  if constexpr (is_half<To>) {
    const bool is_f16 = std::is_same_v<To, F16>;
    if (std::isfinite(value))
      value = std::copysign(round_to(std::fabs(value), is_f16 ? 11 : 8, is_f16 ? -24 : -133), value);
    narrow(static_cast<float>(value), result);
  } else {
    result = static_cast<To>(value);
  }
  return result;
}

template <typename From, typename To>
To treat_element(From value, double scale) {
  if constexpr (std::is_same_v<From, Bool> || std::is_integral_v<From>) {
    static_assert(std::is_same_v<From, To>);
    return reduce_element<From>({value}, ReduceOp::sum, Scale{scale, 1.0});
  } else if constexpr (std::is_same_v<From, double> || std::is_same_v<To, double>) {
    double wide = 0;
    if constexpr (is_half<From>) {
      wide = widen(value);
    } else {
      wide = value;
    }
    return round_once<To>(wide * scale);
  } else {
    float wide = 0;
    if constexpr (is_half<From>) {
      wide = widen(value);
    } else {
      wide = value;
    }
    return round_once<To>(wide * static_cast<float>(scale));
  }
}

template <typename T>
T at(const std::byte* data, std::size_t index) {
  T value{};
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

inline std::vector<Treatment> all_treatments() {
  std::vector<Treatment> found;
  for (int type = 0; type < data_type_count; ++type) {
    const auto dtype = static_cast<DataType>(type);
    found.push_back({dtype, dtype, 1.0});
    found.push_back({dtype, dtype, 1.0 / 3});
    found.push_back({dtype, dtype, -7.25});
    for (int other = 0; other < data_type_count; ++other) {
      const auto to = static_cast<DataType>(other);
      if (to == dtype || !is_possible({dtype, to, 1.0})) continue;
      found.push_back({dtype, to, 1.0});
      found.push_back({dtype, to, 1.0 / 3});
    }
  }
  return found;
}

inline std::string describe(const Treatment& treatment) {
  return std::string(name_of(treatment.from)) + " to " + name_of(treatment.to) + " times " +
         std::to_string(treatment.scale);
}

// Bytes that are random numbers of any type, many of them infinite, NaN or at the ends of a type's range.
inline std::vector<std::byte> any_bytes(std::size_t bytes, DataType type, std::mt19937_64& random) {
  std::vector<std::byte> found(bytes);
  for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
    std::uint64_t word = random();
    // Random bits of an f32 or f64 are mostly too large or small for a half.
    if (type == DataType::f32 && word % 3 != 0) word = (word & 0x8FFFFFFF8FFFFFFF) + 0x3700000037000000;
    if (type == DataType::f64 && word % 3 != 0) word = (word & 0x80FFFFFFFFFFFFFF) + 0x3EB0000000000000;
    if (type == DataType::f64 && word % 5 == 0) word &= ~std::uint64_t{0xFFFFFFFFFF};  // halfway between two halves
    if (word % 31 == 0) word = ~std::uint64_t{0} << word % 64;
    if (type == DataType::boolean) word &= 0x0101010101010101;
    std::memcpy(found.data() + i, &word, sizeof word);
  }
  return found;
}

// Runs of elements between two arrays, at random distances from each other.
struct Arrays {
  std::vector<std::byte> from, to;
  struct Run {
    std::size_t from, to;
    std::int64_t count;
    bool is_zero;
  };
  std::vector<Run> runs;

  Arrays(const std::vector<std::int64_t>& counts, const Treatment& treatment, std::size_t grain,
         std::mt19937_64& random) {
    std::size_t from_bytes = 64, to_bytes = 64;
    for (std::int64_t count : counts) {
      from_bytes += random() % (32 / grain) * grain;
      to_bytes += random() % (32 / grain) * grain;
      runs.push_back({from_bytes, to_bytes, count, random() % 9 == 0});
      from_bytes = next_multiple(from_bytes + static_cast<std::size_t>(count) * size_of(treatment.from));
      to_bytes = next_multiple(to_bytes + static_cast<std::size_t>(count) * size_of(treatment.to));
    }
    from = any_bytes(from_bytes + 64, treatment.from, random);
    to = any_bytes(to_bytes + 64, DataType::u8, random);
  }
  static std::size_t next_multiple(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

  // The list of moves between copies of the arrays.
  std::vector<Move> moves(const std::byte* from_begin, std::byte* to_begin) const {
    std::vector<Move> found;
    for (const Run& run : runs)
      found.push_back({run.is_zero ? nullptr : from_begin + run.from, to_begin + run.to, run.count});
    return found;
  }
};

template <typename From, typename To>
void expect_moved(const Arrays& arrays, const std::vector<std::byte>& before, const Treatment& treatment) {
  std::size_t end = 0;
  for (const Arrays::Run& run : arrays.runs) {
    ASSERT_TRUE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(end),
                           before.begin() + static_cast<std::ptrdiff_t>(run.to),
                           arrays.to.begin() + static_cast<std::ptrdiff_t>(end)))
        << "bytes before " << run.to << " were written, " << describe(treatment);
    for (std::size_t i = 0; i < static_cast<std::size_t>(run.count); ++i) {
      To expected{};
      const From source = at<From>(arrays.from.data() + run.from, i);
      if (!run.is_zero) {
        if constexpr (std::is_same_v<From, To>) {
          expected = treatment.scale == 1.0 ? source : treat_element<From, To>(source, treatment.scale);
        } else {
          expected = treat_element<From, To>(source, treatment.scale);
        }
      }
      ASSERT_TRUE(same(at<To>(arrays.to.data() + run.to, i), expected))
          << describe(treatment) << ", element " << i << " of " << run.count;
    }
    end = run.to + static_cast<std::size_t>(run.count) * sizeof(To);
  }
  ASSERT_TRUE(std::equal(before.begin() + static_cast<std::ptrdiff_t>(end), before.end(),
                         arrays.to.begin() + static_cast<std::ptrdiff_t>(end)));
}

inline void expect_moved(const Arrays& arrays, const std::vector<std::byte>& before, const Treatment& treatment) {
  with_type(treatment.from, [&]<typename From>(From) {
    with_type(treatment.to, [&]<typename To>(To) {
      constexpr bool floats =
          (is_half<From> || std::is_floating_point_v<From>)&&(is_half<To> || std::is_floating_point_v<To>);
      if constexpr (std::is_same_v<From, To> || floats) expect_moved<From, To>(arrays, before, treatment);
    });
  });
}

}  // namespace hvd::devices::naive
