#pragma once
// Runs launches of the kernels of devices/cuda on the host, and computes in the simplest way what they should give.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "devices/cuda/launches.hpp"
#include "devices/naive_reduction.hpp"
#include "fixtures/cuda_kernels/on_host.hpp"

namespace hvd::devices::cuda {

// The host is its own device: one piece of memory for both sides.
class HostDescriptors {
 public:
  explicit HostDescriptors(std::size_t bytes) : words_((bytes + 7) / 8) {}
  Descriptors get() {
    auto* bytes = reinterpret_cast<std::byte*>(words_.data());
    return {bytes, bytes, words_.size() * 8};
  }

 private:
  std::vector<std::uint64_t> words_;
};

template <typename List>
void run(const Launch& launch, const List& list) {
  const KernelOnHost* kernel = kernel_on_host(facts_of(launch.kernel).name);
  ASSERT_NE(kernel, nullptr);
  ASSERT_EQ(kernel->parameter_bytes, sizeof list);
  if (launch.blocks > 0) kernel->run(&list, launch.blocks);
}

inline Launch run_moves(std::span<const Move> moves, const Treatment& treatment, const Chip& chip,
                        AbortWord aborted = nullptr) {
  HostDescriptors descriptors(descriptors_of_moves(moves.size(), chip));
  MoveList list;
  const auto launch = launch_moves(moves, treatment, chip, descriptors.get(), aborted, list);
  if (!launch) ADD_FAILURE() << launch.error().message;
  if (!launch) return {};
  EXPECT_LE(launch->descriptor_bytes, descriptors.get().bytes);
  run(*launch, list);
  return *launch;
}

// Calls visit with a value of the type that the tests use for a type of elements.
template <typename Visit>
void with_type(DataType type, Visit visit) {
  switch (type) {
    case DataType::boolean: return visit(naive::Bool{});
    case DataType::u8: return visit(std::uint8_t{});
    case DataType::i8: return visit(std::int8_t{});
    case DataType::u16: return visit(std::uint16_t{});
    case DataType::i16: return visit(std::int16_t{});
    case DataType::i32: return visit(std::int32_t{});
    case DataType::i64: return visit(std::int64_t{});
    case DataType::f16: return visit(naive::F16{});
    case DataType::bf16: return visit(naive::Bf16{});
    case DataType::f32: return visit(float{});
    case DataType::f64: return visit(double{});
  }
}

template <typename T>
inline constexpr bool is_half = std::is_same_v<T, naive::F16> || std::is_same_v<T, naive::Bf16>;

// Rounds a double once: to the digits of the half type, which a float holds exactly.
template <typename To>
To round_once(double value) {
  To result{};
  if constexpr (is_half<To>) {
    const bool is_f16 = std::is_same_v<To, naive::F16>;
    if (std::isfinite(value))
      value = std::copysign(naive::round_to(std::fabs(value), is_f16 ? 11 : 8, is_f16 ? -24 : -133), value);
    naive::narrow(static_cast<float>(value), result);
  } else {
    result = static_cast<To>(value);
  }
  return result;
}

template <typename From, typename To>
To treat_element(From value, double scale) {
  if constexpr (std::is_same_v<From, naive::Bool> || std::is_integral_v<From>) {
    static_assert(std::is_same_v<From, To>);
    return naive::reduce_element<From>({value}, ReduceOp::sum, Scale{scale, 1.0});
  } else if constexpr (std::is_same_v<From, double> || std::is_same_v<To, double>) {
    double wide = 0;
    if constexpr (is_half<From>) {
      wide = naive::widen(value);
    } else {
      wide = value;
    }
    return round_once<To>(wide * scale);
  } else {
    float wide = 0;
    if constexpr (is_half<From>) {
      wide = naive::widen(value);
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

}  // namespace hvd::devices::cuda
