// The kernels of devices/cuda for Adasum, compiled for the host.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "devices/cuda_moves.hpp"
#include "devices/host/host_kernels.hpp"
#include "sanitized.hpp"

namespace hvd::devices::cuda {
namespace {

constexpr std::int64_t more_than_one_turn = 700'003;  // more than the blocks of a pair take in one turn
constexpr DataType floating[] = {DataType::f16, DataType::bf16, DataType::f32, DataType::f64};

// Pairs of tensors with numbers between -1 and 1.
struct Pairs {
  std::vector<std::vector<std::byte>> left, right, to;
  std::vector<AdasumPair> list;

  Pairs(const std::vector<std::int64_t>& counts, DataType dtype, std::size_t misalignment, std::mt19937_64& random) {
    for (std::int64_t count : counts) {
      const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype) + misalignment;
      for (auto* tensors : {&left, &right, &to}) tensors->emplace_back(bytes);
      std::byte *const a = left.back().data() + misalignment, *const b = right.back().data() + misalignment;
      with_type(dtype, [&]<typename T>(T) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
          for (std::byte* data : {a, b}) {
            const T value = any_number<T>(random);
            std::memcpy(data + i * sizeof(T), &value, sizeof(T));
          }
        }
      });
      list.push_back({a, b, to.back().data() + misalignment, count});
    }
  }
  template <typename T>
  static T any_number(std::mt19937_64& random) {
    const double number = std::ldexp(static_cast<double>(random() % 2'000'001) - 1e6, -20);
    if constexpr (is_half<T> || std::is_floating_point_v<T>) {
      return round_once<T>(number);
    } else {
      return {};
    }
  }
};

// The kernels of the host need aligned elements.
std::vector<std::byte> aligned(const std::vector<std::byte>& tensor, std::size_t misalignment) {
  return {tensor.begin() + static_cast<std::ptrdiff_t>(misalignment), tensor.end()};
}

std::vector<AdasumSums> sums_of(const Pairs& pairs, DataType dtype) {
  std::vector<AdasumSums> sums(pairs.list.size());
  std::vector<double> partial(bytes_of_partial_sums(pairs.list, dtype) / sizeof(double));
  HostDescriptors descriptors(descriptors_of_pairs(pairs.list.size(), {3}));
  SumsList list;
  const auto launches = launch_sums(pairs.list, dtype, partial.data(), sums.data(), descriptors.get(), list);
  EXPECT_TRUE(launches);
  if (launches) {
    run(launches->threads, list);
    run(launches->pairs, list);
  }
  return sums;
}

std::vector<std::int64_t> many_counts(std::size_t pairs, std::mt19937_64& random) {
  std::vector<std::int64_t> counts;
  for (std::size_t i = 0; i < pairs; ++i)
    counts.push_back(static_cast<std::int64_t>(i % 7 == 3 ? 0 : i % 5 == 0 ? random() % 3000 : random() % 40));
  return counts;
}

void expect_near(const AdasumSums& ours, const Products& of_host, std::int64_t count) {
  const double allowed = 1e-15 * static_cast<double>(count + 10) * (of_host.left + of_host.right);
  EXPECT_NEAR(ours.dot, of_host.dot, allowed);
  EXPECT_NEAR(ours.left, of_host.left, allowed);
  EXPECT_NEAR(ours.right, of_host.right, allowed);
}

TEST(CudaAdasum, sums_are_those_of_the_host_up_to_the_order_of_addition) {
  std::mt19937_64 random(1);
  for (DataType dtype : floating) {
    for (std::size_t misalignment : {0, 1}) {
      for (std::size_t many : {1, 127, 128}) {
        auto counts = many_counts(many, random);
        counts.back() = many == 1 && !testing::is_sanitized ? more_than_one_turn : 20'001;
        const Pairs pairs(counts, dtype, misalignment, random);
        const auto sums = sums_of(pairs, dtype);
        for (std::size_t i = 0; i < counts.size(); ++i) {
          const auto left = aligned(pairs.left[i], misalignment), right = aligned(pairs.right[i], misalignment);
          expect_near(sums[i], products_kernel(dtype)(left.data(), right.data(), counts[i]), counts[i]);
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST(CudaAdasum, the_bits_of_sums_do_not_depend_on_alignment_or_other_tensors) {
  std::mt19937_64 random(2);
  for (DataType dtype : floating) {
    for (std::int64_t count : {5, 3001, 50'001}) {
      Pairs alone({count}, dtype, 0, random), among_others({100, count, 7}, dtype, 2, random);
      const std::size_t bytes = static_cast<std::size_t>(count) * size_of(dtype);
      std::memcpy(among_others.left[1].data() + 2, alone.left[0].data(), bytes);
      std::memcpy(among_others.right[1].data() + 2, alone.right[0].data(), bytes);
      const auto one = sums_of(alone, dtype), three = sums_of(among_others, dtype);
      EXPECT_EQ(std::memcmp(&one[0], &three[1], sizeof(AdasumSums)), 0) << name_of(dtype) << " " << count;
    }
  }
}

TEST(CudaAdasum, combinations_have_the_bits_of_the_host) {
  std::mt19937_64 random(3);
  for (DataType dtype : floating) {
    for (std::size_t misalignment : {0, 1}) {
      for (std::size_t many : {1, 126, 127}) {
        auto counts = many_counts(many, random);
        counts.back() = 20'001;
        const Pairs pairs(counts, dtype, misalignment, random);
        auto sums = sums_of(pairs, dtype);
        const double scale = 1.0 / 3;
        HostDescriptors descriptors(descriptors_of_pairs(many, {2}));
        CombinationList list;
        const auto launch = launch_combination(pairs.list, dtype, sums.data(), scale, {2}, descriptors.get(), list);
        ASSERT_TRUE(launch);
        run(*launch, list);
        for (std::size_t i = 0; i < counts.size(); ++i) {
          const AdasumPair& pair = pairs.list[i];
          const auto weight = [&](double square) {
            return (square < std::sqrt(std::numeric_limits<double>::min()) ? 1.0 : 1.0 - sums[i].dot / (2 * square)) *
                   scale;
          };
          std::vector<std::byte> expected(static_cast<std::size_t>(pair.count) * size_of(dtype));
          if (pair.count == 0) continue;
          const auto left = aligned(pairs.left[i], misalignment), right = aligned(pairs.right[i], misalignment);
          weighted_sum_kernel(dtype)(left.data(), right.data(), expected.data(), pair.count,
                                     {weight(sums[i].left), weight(sums[i].right)});
          ASSERT_EQ(std::memcmp(pair.to, expected.data(), expected.size()), 0) << name_of(dtype) << ", pair " << i;
        }
      }
    }
  }
}

TEST(CudaAdasum, a_vector_of_zeros_leaves_the_other_as_it_is) {
  std::vector<float> zeros(100), ones(100, 1.0F), to(100);
  const AdasumPair pair = {zeros.data(), ones.data(), to.data(), 100};
  AdasumSums sums = {0, 0, 100};
  CombinationList list;
  const auto launch = launch_combination({&pair, 1}, DataType::f32, &sums, 1.0, {1}, {}, list);
  ASSERT_TRUE(launch);
  run(*launch, list);
  EXPECT_EQ(to, ones);
}

TEST(CudaAdasum, integers_are_refused_by_name) {
  SumsList list;
  const auto launches = launch_sums({}, DataType::i32, nullptr, nullptr, {}, list);
  ASSERT_FALSE(launches);
  EXPECT_NE(launches.error().message.find("found int32"), std::string::npos);
}

}  // namespace
}  // namespace hvd::devices::cuda
