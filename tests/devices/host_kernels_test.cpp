#include "devices/host/host_kernels.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "devices/host/kernel_table.hpp"
#include "devices/naive_reduction.hpp"
#include "guarded_memory.hpp"
#include "sanitized.hpp"

namespace hvd::devices {
namespace {

using naive::Bf16;
using naive::Bool;
using naive::F16;

std::vector<ReduceOp> operations_on(DataType dtype) {
  std::vector<ReduceOp> list;
  for (std::size_t at = 0; at < reduce_op_count; ++at)
    if (takes(static_cast<ReduceOp>(at), dtype)) list.push_back(static_cast<ReduceOp>(at));
  return list;
}

// An array with a fence of other bytes on each side. A sanitizer or the test itself notices a write outside of the
// array.
template <class T>
class FencedArray {
 public:
  FencedArray(std::size_t count, std::size_t misalignment)
      : count_(count), begin_(fence + misalignment), bytes_(begin_ + count * sizeof(T) + fence, fence_byte) {}

  void* data() { return bytes_.data() + begin_; }
  T at(std::size_t index) const {
    T value{};
    std::memcpy(&value, bytes_.data() + begin_ + index * sizeof(T), sizeof(T));
    return value;
  }
  void set(std::size_t index, T value) { std::memcpy(bytes_.data() + begin_ + index * sizeof(T), &value, sizeof(T)); }
  bool fences_stand() const {
    const auto is_fence = [](unsigned char byte) { return byte == fence_byte; };
    return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), is_fence) &&
           std::all_of(bytes_.end() - static_cast<std::ptrdiff_t>(fence), bytes_.end(), is_fence);
  }

 private:
  static constexpr std::size_t fence = 128;
  static constexpr unsigned char fence_byte = 0xA5;
  std::size_t count_;
  std::size_t begin_;
  std::vector<unsigned char> bytes_;
};

// Random numbers of many magnitudes, with special ones among them: zeros, infinities, NaN, subnormal, extreme.
template <class T>
T any_value(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  const bool odd_one = bits % 23 == 0;
  if constexpr (std::is_same_v<T, Bool>) {
    return {static_cast<std::uint8_t>((bits >> 32) % 2)};
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(odd_one ? (bits >> 32) % 3 - 1 : bits >> (bits % 64));
  } else if constexpr (std::is_floating_point_v<T>) {
    constexpr T odd[] = {T(0),
                         -T(0),
                         std::numeric_limits<T>::infinity(),
                         std::numeric_limits<T>::quiet_NaN(),
                         std::numeric_limits<T>::denorm_min(),
                         -std::numeric_limits<T>::max(),
                         std::numeric_limits<T>::min()};
    if (odd_one) return odd[(bits >> 32) % std::size(odd)];
    const T number = std::ldexp(static_cast<T>(1 + (bits >> 20) % 1000003), static_cast<int>((bits >> 8) % 100) - 50);
    return (bits & 32) != 0 ? -number : number;
  } else {
    if (odd_one) return {static_cast<std::uint16_t>(bits >> 32)};
    T half{};
    const double magnitude = std::ldexp(static_cast<double>(1 + (bits >> 20) % 4099), static_cast<int>(bits % 20) - 20);
    naive::narrow(static_cast<float>((bits & 32) != 0 ? -magnitude : magnitude), half);
    return half;
  }
}

struct Case {
  ReduceOp op;
  std::size_t count;
  int sources;
  int destinations;
  Scale scale;
  std::size_t misalignment;  // distance in bytes from an aligned address, different for each array
  int in_place;              // the index of the source that is also the first destination, or -1
};

std::string describe(const Case& c) {
  return std::string(name_of(c.op)) + ", " + std::to_string(c.count) + " elements, " + std::to_string(c.sources) +
         " sources, " + std::to_string(c.destinations) + " destinations, scale " + std::to_string(c.scale.pre) +
         " and " + std::to_string(c.scale.post) + ", misaligned by " + std::to_string(c.misalignment) + ", in place " +
         std::to_string(c.in_place);
}

template <class T>
void check(DataType dtype, const Case& c, std::mt19937_64& random) {
  std::vector<FencedArray<T>> inputs;
  for (int k = 0; k < c.sources; ++k) {
    inputs.emplace_back(c.count, c.misalignment * static_cast<std::size_t>(k + 1) % 64);
    for (std::size_t i = 0; i < c.count; ++i) inputs.back().set(i, any_value<T>(random));
  }
  std::vector<T> expected;
  std::vector<T> values(static_cast<std::size_t>(c.sources));
  for (std::size_t i = 0; i < c.count; ++i) {
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = inputs[k].at(i);
    expected.push_back(naive::reduce_element(values, c.op, c.scale));
  }
  for (const KernelTable& table : kernel_tables()) {
    std::vector<FencedArray<T>> sources = inputs;
    std::vector<FencedArray<T>> destinations;
    for (int k = 0; k < c.destinations; ++k) {
      destinations.emplace_back(c.count, c.misalignment * static_cast<std::size_t>(k + 2) % 64);
    }
    std::vector<const void*> from;
    std::vector<void*> to;
    for (auto& source : sources) from.push_back(source.data());
    for (auto& destination : destinations) to.push_back(destination.data());
    if (c.in_place >= 0) {
      destinations[0] = sources[static_cast<std::size_t>(c.in_place)];
      to[0] = destinations[0].data();
      from[static_cast<std::size_t>(c.in_place)] = to[0];
    }
    table.at(dtype, c.op)(from.data(), c.sources, to.data(), c.destinations, static_cast<std::int64_t>(c.count),
                          c.scale);
    for (const auto& destination : destinations) {
      ASSERT_TRUE(destination.fences_stand()) << table.instruction_set << ": " << describe(c);
      for (std::size_t i = 0; i < c.count; ++i) {
        if (naive::same(destination.at(i), expected[i])) continue;
        std::string seen = "sources:";
        for (const auto& input : inputs) seen += " " + ::testing::PrintToString(input.at(i));
        FAIL() << table.instruction_set << " " << name_of(dtype) << ": " << describe(c) << ": element " << i << " is "
               << ::testing::PrintToString(destination.at(i)) << " instead of " << ::testing::PrintToString(expected[i])
               << "; " << seen;
      }
    }
    for (std::size_t k = 0; k < sources.size(); ++k) {
      for (std::size_t i = 0; i < c.count; ++i) {
        ASSERT_EQ(std::memcmp(static_cast<const char*>(sources[k].data()) + i * sizeof(T),
                              static_cast<const char*>(inputs[k].data()) + i * sizeof(T), sizeof(T)),
                  0)
            << "source " << k << " was written to: " << describe(c);
      }
    }
  }
}

template <class T>
DataType dtype_of() {
  if constexpr (std::is_same_v<T, Bool>) return DataType::boolean;
  if constexpr (std::is_same_v<T, std::uint8_t>) return DataType::u8;
  if constexpr (std::is_same_v<T, std::int8_t>) return DataType::i8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return DataType::u16;
  if constexpr (std::is_same_v<T, std::int16_t>) return DataType::i16;
  if constexpr (std::is_same_v<T, std::int32_t>) return DataType::i32;
  if constexpr (std::is_same_v<T, std::int64_t>) return DataType::i64;
  if constexpr (std::is_same_v<T, std::uint32_t>) return DataType::u32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return DataType::u64;
  if constexpr (std::is_same_v<T, F16>) return DataType::f16;
  if constexpr (std::is_same_v<T, Bf16>) return DataType::bf16;
  if constexpr (std::is_same_v<T, float>) return DataType::f32;
  return DataType::f64;
}

template <class T>
class HostKernels : public ::testing::Test {};

using Types = ::testing::Types<Bool, std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::int32_t, std::int64_t,
                               F16, Bf16, float, double, std::uint32_t, std::uint64_t>;
struct TypeNames {
  template <class T>
  static std::string GetName(int) {
    return name_of(dtype_of<T>());
  }
};
TYPED_TEST_SUITE(HostKernels, Types, TypeNames);

TYPED_TEST(HostKernels, give_the_naive_result_bit_by_bit_with_every_instruction_set) {
  std::mt19937_64 random(20240611);
  constexpr std::array<std::size_t, 13> counts = {0, 1, 2, 7, 15, 16, 17, 63, 64, 65, 300, 1000, 4099};
  constexpr std::array<Scale, 4> scales = {Scale{1.0, 1.0}, Scale{1.0, 1.0 / 3}, Scale{0.7, 1.0},
                                           Scale{-2.3, 0.123456789}};
  constexpr std::array<int, 4> destination_counts = {1, 2, 4, 3};
  std::size_t turn = 0;
  for (const ReduceOp op : operations_on(dtype_of<TypeParam>())) {
    for (const std::size_t count : counts) {
      for (const int sources : {1, 2, 3, 4, 5, 8}) {
        for (const Scale scale : scales) {
          const std::size_t misalignment = turn % 3 == 0 ? 0 : turn % 64;
          const int in_place = static_cast<int>(turn % 11) - 5;
          const Case c{
              op, count, sources, destination_counts[turn % 4], scale, misalignment, std::min(in_place, sources - 1)};
          check<TypeParam>(dtype_of<TypeParam>(), c, random);
          if (this->HasFatalFailure()) return;
          ++turn;
        }
      }
    }
  }
}

// As on a node of many cores: more arrays than a word has bits, long enough for prefetching.
TYPED_TEST(HostKernels, reduce_for_as_many_ranks_as_a_node_may_have) {
  std::mt19937_64 random(20261123);
  for (const int ranks : {31, 32, 33, 65}) {
    const Case c{ReduceOp::sum, (std::size_t{40} << 10) / sizeof(TypeParam), 2, ranks, Scale{}, 0, -1};
    check<TypeParam>(dtype_of<TypeParam>(), c, random);
    if (this->HasFatalFailure()) return;
  }
}

TYPED_TEST(HostKernels, leave_everything_alone_when_there_is_nothing_to_reduce) {
  for (const KernelTable& table : kernel_tables()) {
    for (const ReduceOp op : operations_on(dtype_of<TypeParam>())) {
      const void* const sources[] = {nullptr, nullptr};
      void* const destinations[] = {nullptr};
      table.at(dtype_of<TypeParam>(), op)(sources, 2, destinations, 1, 0, Scale{});
      table.at(dtype_of<TypeParam>(), op)(sources, 2, destinations, 1, 0, Scale{0.5, 0.5});
    }
  }
}

// All numbers of a 16-bit format, scaled so that results meet every kind of rounding, overflow and underflow.
template <class T>
void check_all_halves() {
  constexpr std::size_t count = 65536;
  std::vector<T> input(count), zeros(count, T{0x8000}), output(count);  // adding minus zero changes nothing
  for (std::size_t i = 0; i < count; ++i) input[i].bits = static_cast<std::uint16_t>(i);
  for (const KernelTable& table : kernel_tables()) {
    for (const double factor : {1.0, 0.5, 1.0 / 3, 1.0009765625, 0.000123, 1.5e-7, 777.7, -65504.0, 1e-38}) {
      for (const Scale scale : {Scale{1.0, factor}, Scale{factor, 1.0}}) {
        const void* const sources[] = {input.data(), zeros.data()};
        void* const destinations[] = {output.data()};
        table.at(dtype_of<T>(), ReduceOp::sum)(sources, 2, destinations, 1, count, scale);
        for (std::size_t i = 0; i < count; ++i) {
          const T expected = naive::reduce_element<T>({input[i], zeros[i]}, ReduceOp::sum, scale);
          ASSERT_TRUE(naive::same(output[i], expected)) << table.instruction_set << ": " << i << " times " << factor
                                                        << " is " << output[i].bits << " instead of " << expected.bits;
        }
      }
    }
  }
}

TEST(HostKernels, round_every_float16_to_nearest_even) {
  check_all_halves<F16>();
}
TEST(HostKernels, round_every_bfloat16_to_nearest_even) {
  check_all_halves<Bf16>();
}

TEST(HostKernels, accumulate_halves_in_single_precision_and_round_once) {
  // 2048 + 1 + 1 is 2050. Rounding after each addition would give 2048.
  const std::uint16_t f16[] = {0x6800, 0x3C00, 0x3C00};
  const std::uint16_t bf16[] = {0x4380, 0x3F80, 0x3F80};  // 256 + 1 + 1
  std::uint16_t result = 0;
  void* const destinations[] = {&result};
  for (const KernelTable& table : kernel_tables()) {
    const void* const halves[] = {&f16[0], &f16[1], &f16[2]};
    table.at(DataType::f16, ReduceOp::sum)(halves, 3, destinations, 1, 1, Scale{});
    EXPECT_EQ(result, 0x6801) << table.instruction_set;
    const void* const brains[] = {&bf16[0], &bf16[1], &bf16[2]};
    table.at(DataType::bf16, ReduceOp::sum)(brains, 3, destinations, 1, 1, Scale{});
    EXPECT_EQ(result, 0x4381) << table.instruction_set;
  }
}

// ---- Adasum --------------------------------------------------------------------------------------------------------

// As documented: element number i belongs to partial sum i mod 8.
Products naive_products(const std::vector<double>& left, const std::vector<double>& right) {
  double sums[3][8] = {};
  for (std::size_t i = 0; i < left.size(); ++i) {
    sums[0][i % 8] += left[i] * right[i];
    sums[1][i % 8] += left[i] * left[i];
    sums[2][i % 8] += right[i] * right[i];
  }
  auto total = [](const double* part) {
    return ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
  };
  return {total(sums[0]), total(sums[1]), total(sums[2])};
}

template <class T>
T from_double(double value) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  else {
    T narrow;
    naive::narrow(static_cast<float>(value), narrow);
    return narrow;
  }
}
template <class T>
double to_double(T value) {
  if constexpr (std::is_floating_point_v<T>) return value;
  else return naive::widen(value);
}

template <class T>
void check_adasum_kernels() {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  for (const std::size_t count : {0u, 1u, 3u, 7u, 8u, 9u, 31u, 255u, 256u, 257u, 1000u, 4099u}) {
    std::vector<T> left, right;
    std::vector<double> wide_left, wide_right;
    for (std::size_t i = 0; i < count; ++i) {
      left.push_back(from_double<T>(normal(random)));
      right.push_back(from_double<T>(normal(random)));
      wide_left.push_back(to_double(left.back()));
      wide_right.push_back(to_double(right.back()));
    }
    const Products expected = naive_products(wide_left, wide_right);
    const Weights weights{0.7, -1.0 / 3};
    for (const KernelTable& table : kernel_tables()) {
      const auto dtype = static_cast<std::size_t>(dtype_of<T>());
      const auto length = static_cast<std::int64_t>(count);
      const Products found = table.products[dtype](left.data(), right.data(), length);
      EXPECT_EQ(found.dot, expected.dot) << table.instruction_set << " " << count;
      EXPECT_EQ(found.left, expected.left) << table.instruction_set << " " << count;
      EXPECT_EQ(found.right, expected.right) << table.instruction_set << " " << count;
      std::vector<T> sum = left;
      table.weighted_sum[dtype](sum.data(), right.data(), sum.data(), length, weights);
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_TRUE(naive::same(sum[i], from_double<T>(weights.left * wide_left[i] + weights.right * wide_right[i])))
            << table.instruction_set << " " << i;
    }
  }
}

TEST(ReduceKernels, are_there_for_the_types_of_every_operation_with_every_instruction_set) {
  for (const KernelTable& table : kernel_tables())
    for (int type = 0; type < data_type_count; ++type)
      for (std::size_t op = 0; op < reduce_op_count; ++op)
        EXPECT_EQ(table.at(static_cast<DataType>(type), static_cast<ReduceOp>(op)) != nullptr,
                  takes(static_cast<ReduceOp>(op), static_cast<DataType>(type)))
            << table.instruction_set << " " << name_of(static_cast<DataType>(type)) << " "
            << name_of(static_cast<ReduceOp>(op));
}

TEST(AdasumKernels, give_the_documented_bits_with_every_instruction_set) {
  check_adasum_kernels<double>();
  check_adasum_kernels<float>();
  check_adasum_kernels<F16>();
  check_adasum_kernels<Bf16>();
}

TEST(AdasumKernels, are_there_for_floating_types_alone) {
  for (std::size_t dtype = 0; dtype < data_type_count; ++dtype) {
    const auto type = static_cast<DataType>(dtype);
    EXPECT_EQ(products_kernel(type) != nullptr, is_floating(type));
    EXPECT_EQ(weighted_sum_kernel(type) != nullptr, is_floating(type));
  }
}

template <class T>
T reduce_two(const KernelTable& table, ReduceOp op, T left, T right, Scale scale = {}) {
  T result{};
  const void* const sources[] = {&left, &right};
  void* const destinations[] = {&result};
  table.at(dtype_of<T>(), op)(sources, 2, destinations, 1, 1, scale);
  return result;
}

TEST(HostKernels, let_nan_win_the_minimum_and_the_maximum_from_either_side) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const KernelTable& table : kernel_tables()) {
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      EXPECT_TRUE(std::isnan(reduce_two(table, op, nan, 1.0F))) << table.instruction_set;
      EXPECT_TRUE(std::isnan(reduce_two(table, op, 1.0F, nan))) << table.instruction_set;
      EXPECT_TRUE(std::isnan(reduce_two(table, op, static_cast<double>(nan), -1.0))) << table.instruction_set;
      EXPECT_TRUE(std::isnan(widen(reduce_two(table, op, F16{0x3C00}, F16{0xFC01})))) << table.instruction_set;
      EXPECT_TRUE(std::isnan(widen(reduce_two(table, op, Bf16{0x7F81}, Bf16{0x3F80})))) << table.instruction_set;
    }
    EXPECT_TRUE(std::isnan(widen(reduce_two(table, ReduceOp::sum, Bf16{0x7FFF}, Bf16{0})))) << table.instruction_set;
  }
}

TEST(HostKernels, saturate_integers_that_scaling_drives_out_of_range) {
  constexpr auto greatest = std::numeric_limits<std::int64_t>::max();
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  for (const KernelTable& table : kernel_tables()) {
    EXPECT_EQ(reduce_two<std::uint8_t>(table, ReduceOp::max, 100, 3, {1.0, 3.0}), 255) << table.instruction_set;
    EXPECT_EQ(reduce_two<std::uint8_t>(table, ReduceOp::max, 100, 3, {-1.0, 1.0}), 0) << table.instruction_set;
    EXPECT_EQ(reduce_two<std::int8_t>(table, ReduceOp::min, -100, 3, {1.0, 3.0}), -128) << table.instruction_set;
    EXPECT_EQ(reduce_two<std::int64_t>(table, ReduceOp::max, greatest, 0, {1.0, 1.5}), greatest)
        << table.instruction_set;
    EXPECT_EQ(reduce_two<std::int64_t>(table, ReduceOp::max, greatest, 0, {1.0, -1.5}), least) << table.instruction_set;
    EXPECT_EQ(reduce_two<std::int32_t>(table, ReduceOp::sum, 7, 8, {1.0, std::nan("")}), 0) << table.instruction_set;
    EXPECT_EQ(reduce_two<std::uint32_t>(table, ReduceOp::max, 3'000'000'000, 3, {1.0, 1.25}), 3'750'000'000)
        << table.instruction_set;
    EXPECT_EQ(reduce_two<std::uint32_t>(table, ReduceOp::max, 3'000'000'000, 3, {1.0, 2.0}), UINT32_MAX)
        << table.instruction_set;
    EXPECT_EQ(reduce_two<std::uint32_t>(table, ReduceOp::max, 3, 4, {1.0, -1.0}), 0) << table.instruction_set;
    EXPECT_EQ(reduce_two<std::uint64_t>(table, ReduceOp::max, std::uint64_t{1} << 63, 0, {1.0, 1.5}),
              std::uint64_t{3} << 62)
        << table.instruction_set;
    EXPECT_EQ(reduce_two<std::uint64_t>(table, ReduceOp::max, UINT64_MAX, 0, {1.0, 1.5}), UINT64_MAX)
        << table.instruction_set;
    EXPECT_EQ(reduce_two<std::uint64_t>(table, ReduceOp::max, 3, 4, {1.0, -1.0}), 0) << table.instruction_set;
  }
}

TEST(HostKernels, truncate_scaled_integers_toward_zero_and_wrap_their_sums) {
  for (const KernelTable& table : kernel_tables()) {
    EXPECT_EQ(reduce_two<std::int32_t>(table, ReduceOp::sum, -3, -4, {1.0, 0.5}), -3) << table.instruction_set;
    EXPECT_EQ(reduce_two<std::int32_t>(table, ReduceOp::sum, 3, -5, {0.5, 1.0}), -1) << table.instruction_set;
    EXPECT_EQ(reduce_two<std::uint8_t>(table, ReduceOp::sum, 200, 100), 44) << table.instruction_set;
    EXPECT_EQ(reduce_two<std::int8_t>(table, ReduceOp::product, -100, 3), -44) << table.instruction_set;
    EXPECT_EQ(reduce_two<std::int64_t>(table, ReduceOp::product, std::int64_t{1} << 33, (std::int64_t{1} << 32) + 5),
              std::int64_t{5} << 33)
        << table.instruction_set;
  }
}

TEST(HostKernels, are_of_the_best_instruction_set) {
  ASSERT_FALSE(kernel_tables().empty());
  EXPECT_STREQ(instruction_set(), kernel_tables()[0].instruction_set);
  EXPECT_EQ(reduce_kernel(DataType::f32, ReduceOp::sum), kernel_tables()[0].at(DataType::f32, ReduceOp::sum));
}

// ---- pages that must not be touched ----

// The kernel that runs while the pages are guarded. The signal handler prints it if the kernel touches a guarded page.
struct Guarded {
  const char* instruction_set;
  const char* dtype;
  const char* op;
  std::size_t count, misalignment;
  int sources, destinations;
  bool at_end, is_scaled;
};
Guarded guarded{};

void tell_what_went_too_far(int) {
  char text[256];
  int length = std::snprintf(
      text, sizeof text,
      "%s kernel of %s, %s: %zu elements, %d sources, %d destinations, %s, misaligned by %zu, at "
      "the %s of its pages: touched a byte that is not its own\n",
      guarded.instruction_set, guarded.dtype, guarded.op, guarded.count, guarded.sources, guarded.destinations,
      guarded.is_scaled ? "scaled" : "not scaled", guarded.misalignment, guarded.at_end ? "end" : "begin");
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  std::signal(SIGSEGV, SIG_DFL);  // the access is repeated and ends the program
}

// Arrays at the very begin or end of their pages. With misalignment, less than one element of the page stays free.
class GuardedArray {
 public:
  GuardedArray() : memory_(40 << 10) {}
  void place(std::size_t bytes, std::size_t element_bytes, bool at_end, std::size_t misalignment) {
    std::size_t offset = misalignment % element_bytes;
    std::size_t free = at_end && offset != 0 ? element_bytes - offset : 0;
    data_ = at_end ? memory_.end() - bytes - free : memory_.begin() + offset;
    bytes_ = bytes;
  }
  std::byte* data() const { return data_; }
  // Fills the bytes on both sides that are not guarded.
  void fill_surroundings() {
    visit_surroundings([](std::byte& byte) { byte = fill; });
  }
  bool surroundings_stand() {
    bool stand = true;
    visit_surroundings([&](std::byte& byte) { stand = stand && byte == fill; });
    return stand;
  }

 private:
  static constexpr std::byte fill{0xA5};
  template <class Visit>
  void visit_surroundings(Visit visit) {
    constexpr std::ptrdiff_t far = 64;
    for (std::byte* at = data_ - std::min(far, data_ - memory_.begin()); at < data_; ++at) visit(*at);
    std::byte* end = data_ + bytes_;
    for (std::byte* at = end; at < end + std::min(far, memory_.end() - end); ++at) visit(*at);
  }
  hvd::testing::GuardedMemory memory_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

TYPED_TEST(HostKernels, touch_no_byte_outside_their_arrays) {
  constexpr std::size_t element_bytes = sizeof(TypeParam);
  const DataType dtype = dtype_of<TypeParam>();
  std::vector<std::size_t> counts(testing::is_sanitized ? 70 : 201);
  std::iota(counts.begin(), counts.end(), 0U);
  for (std::size_t more : {255, 256, 257, 1023, 4097}) counts.push_back(more);
  std::array<GuardedArray, 4> sources;
  std::array<GuardedArray, 3> destinations;
  const auto former = std::signal(SIGSEGV, &tell_what_went_too_far);
  std::size_t turn = 0;
  for (const KernelTable& table : kernel_tables())
    for (const ReduceOp op : operations_on(dtype))
      for (const std::size_t count : counts)
        for (const bool at_end : {false, true})
          for (const bool is_scaled : {false, true})
            for (const std::size_t misalignment : {0, 1, 3, 6}) {
              const int source_count = 1 + static_cast<int>(turn / 3 % 4);
              const int destination_count = 1 + static_cast<int>(turn % 3);
              ++turn;
              guarded = {table.instruction_set, name_of(dtype),    name_of(op), count,    misalignment,
                         source_count,          destination_count, at_end,      is_scaled};
              const void* from[4];
              void* to[3];
              for (std::size_t k = 0; k < 4; ++k) {
                sources[k].place(count * element_bytes, element_bytes, at_end, misalignment * (k + 1));
                from[k] = sources[k].data();
              }
              for (std::size_t k = 0; k < 3; ++k) {
                destinations[k].place(count * element_bytes, element_bytes, at_end, misalignment + k);
                destinations[k].fill_surroundings();
                to[k] = destinations[k].data();
              }
              table.at(dtype, op)(from, source_count, to, destination_count, static_cast<std::int64_t>(count),
                                  is_scaled ? Scale{0.5, 3.0} : Scale{});
              for (GuardedArray& destination : destinations)
                ASSERT_TRUE(destination.surroundings_stand()) << table.instruction_set << " " << name_of(op) << ", "
                                                              << count << " elements, misaligned by " << misalignment;
            }
  std::signal(SIGSEGV, former);
}

TEST(CopyStreaming, touches_no_byte_outside_its_arrays) {
  GuardedArray from, to;
  const auto former = std::signal(SIGSEGV, &tell_what_went_too_far);
  for (std::size_t bytes = 0; bytes <= 8300; bytes += bytes < 300 ? 1 : 797)
    for (const bool at_end : {false, true})
      for (const std::size_t misalignment : {0, 1, 3, 8, 63}) {
        guarded = {"streaming", "bytes", "copy", bytes, misalignment, 1, 1, at_end, false};
        from.place(bytes, 64, at_end, misalignment);
        to.place(bytes, 64, at_end, misalignment * 3);
        to.fill_surroundings();
        copy_streaming(to.data(), from.data(), bytes);
        ASSERT_TRUE(to.surroundings_stand()) << bytes << " bytes, misaligned by " << misalignment;
      }
  std::signal(SIGSEGV, former);
}

TEST(CopyStreaming, copies_every_byte_and_no_other_whatever_the_alignment) {
  for (const std::size_t bytes : {0UL, 1UL, 63UL, 64UL, 4095UL, 4096UL, 4097UL, 5000UL, 100003UL}) {
    for (const std::size_t to_offset : {0UL, 1UL, 17UL, 63UL}) {
      for (const std::size_t from_offset : {0UL, 5UL, 32UL}) {
        FencedArray<unsigned char> from(bytes, from_offset), to(bytes, to_offset);
        for (std::size_t i = 0; i < bytes; ++i) from.set(i, static_cast<unsigned char>(i * 7 + i / 256));
        copy_streaming(to.data(), from.data(), bytes);
        ASSERT_TRUE(to.fences_stand());
        ASSERT_TRUE(std::equal(static_cast<const unsigned char*>(to.data()),
                               static_cast<const unsigned char*>(to.data()) + bytes,
                               static_cast<const unsigned char*>(from.data())))
            << bytes << " bytes";
      }
    }
  }
}

}  // namespace
}  // namespace hvd::devices
