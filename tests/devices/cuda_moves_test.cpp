// The kernels of devices/cuda that move elements, compiled for the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "devices/cuda_moves.hpp"
#include "devices/host/host_kernels.hpp"
#include "devices/kernels/memory.hpp"
#include "guarded_memory.hpp"
#include "sanitized.hpp"

namespace hvd::devices::cuda {
namespace {

constexpr std::int64_t large = (testing::is_sanitized ? 1 << 16 : 1 << 20) + 3;

void check(const std::vector<std::int64_t>& counts, const Treatment& treatment, std::size_t grain, const Chip& chip,
           std::mt19937_64& random) {
  Arrays arrays(counts, treatment, grain, random);
  const auto before = arrays.to;
  run_moves(arrays.moves(arrays.from.data(), arrays.to.data()), treatment, chip);
  naive::expect_moved(arrays, before, treatment);
}

TEST(CudaMoves, every_type_moves_at_every_alignment_and_size) {
  std::mt19937_64 random(1);
  const std::vector<std::int64_t> counts = {0, 1, 7, 16, 63, 64, 255, 1023, 4096, 4097, 20000, 1, 2, 3};
  for (const Treatment& treatment : all_treatments()) {
    for (std::size_t grain : {1, 2, 4, 8, 16}) {
      check(counts, treatment, grain, {static_cast<std::uint32_t>(grain == 4 ? 1 : 40)}, random);
    }
    if (HasFatalFailure()) return;
  }
}

TEST(CudaMoves, large_tensors_are_shared_by_all_blocks) {
  std::mt19937_64 random(2);
  for (const Treatment& treatment : all_treatments()) {
    if (treatment.scale < 0) continue;
    for (std::size_t grain : {1, 16}) check({large}, treatment, grain, {7}, random);
    if (HasFatalFailure()) return;
  }
}

TEST(CudaMoves, lists_of_up_to_a_thousand_tensors_need_one_launch) {
  std::mt19937_64 random(3);
  const Treatment treatments[] = {{DataType::u8, DataType::u8, 1.0},
                                  {DataType::f32, DataType::f32, 1.0},
                                  {DataType::f32, DataType::bf16, 0.5},
                                  {DataType::f16, DataType::f64, 3.0},
                                  {DataType::i64, DataType::i64, 1.0 / 3}};
  for (std::size_t tensors : {1, 2, 168, 169, 1000}) {
    std::vector<std::int64_t> counts;
    for (std::size_t i = 0; i < tensors; ++i)
      counts.push_back(static_cast<std::int64_t>(random() % 5 == 0 ? random() % 5000 : random() % 40));
    for (const Treatment& treatment : treatments)
      for (std::uint32_t multiprocessors : {1, 132}) check(counts, treatment, 4, {multiprocessors}, random);
    if (HasFatalFailure()) return;
  }
}

TEST(CudaMoves, scaled_elements_have_the_bits_of_the_kernels_of_the_host) {
  std::mt19937_64 random(4);
  for (int type = 0; type < data_type_count; ++type) {
    const auto dtype = static_cast<DataType>(type);
    for (double scale : {1.0 / 3, -2.5, 1e10}) {
      const std::int64_t count = 5000;
      const auto from = any_bytes(static_cast<std::size_t>(count) * size_of(dtype), dtype, random);
      auto ours = from, of_host = from;
      const Move move = {from.data(), ours.data(), count};
      run_moves({&move, 1}, {dtype, dtype, scale}, {3});
      const void* source = from.data();
      void* destination = of_host.data();
      reduce_kernel(dtype, ReduceOp::sum)(&source, 1, &destination, 1, count, Scale{scale, 1.0});
      with_type(dtype, [&]<typename T>(T) {
        for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
          ASSERT_TRUE(naive::same(at<T>(ours.data(), i), at<T>(of_host.data(), i)))
              << name_of(dtype) << " times " << scale << ", element " << i;
      });
    }
  }
}

TEST(CudaMoves, elements_are_scaled_in_place) {
  std::vector<float> data(100000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const Move move = {data.data(), data.data(), static_cast<std::int64_t>(data.size())};
  run_moves({&move, 1}, {DataType::f32, DataType::f32, 0.5}, {5});
  for (std::size_t i = 0; i < data.size(); ++i) ASSERT_EQ(data[i], static_cast<float>(i) / 2);
}

// Every half as a float, and around every half the doubles where rounding turns.
TEST(CudaMoves, doubles_are_rounded_once) {
  for (DataType half : {DataType::f16, DataType::bf16}) {
    std::vector<double> numbers;
    for (unsigned bits = 0; bits < 0x10000; bits += 3) {
      const double value = half == DataType::f16 ? naive::widen(naive::F16{static_cast<std::uint16_t>(bits)})
                                                 : naive::widen(naive::Bf16{static_cast<std::uint16_t>(bits)});
      const double next = half == DataType::f16 ? naive::widen(naive::F16{static_cast<std::uint16_t>(bits + 1)})
                                                : naive::widen(naive::Bf16{static_cast<std::uint16_t>(bits + 1)});
      const double middle = value / 2 + next / 2;
      for (double number : {value, middle, std::nextafter(middle, 1e300), std::nextafter(middle, -1e300)})
        numbers.push_back(number);
    }
    for (double number : {1e300, -1e300, 1e-300, -1e-300, 65520.0, 65519.99999999999}) numbers.push_back(number);
    std::vector<std::uint16_t> rounded(numbers.size());
    const Move move = {numbers.data(), rounded.data(), static_cast<std::int64_t>(numbers.size())};
    run_moves({&move, 1}, {DataType::f64, half, 1.0}, {3});
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (std::isnan(numbers[i])) continue;
      const unsigned expected =
          half == DataType::f16 ? round_once<naive::F16>(numbers[i]).bits : round_once<naive::Bf16>(numbers[i]).bits;
      ASSERT_EQ(rounded[i], expected) << numbers[i];
    }
  }
}

// Tensors that end or begin at the border of what may be read and written.
TEST(CudaMoves, nothing_outside_of_a_tensor_is_read_or_written) {
  const testing::GuardedMemory source(1), target(1);
  const std::size_t room = source.bytes();
  for (std::size_t bytes = 1; bytes < 80; ++bytes) {
    for (std::size_t distance = 0; distance < 17; ++distance) {
      const Move moves[] = {
          {source.begin(), target.begin() + distance, static_cast<std::int64_t>(bytes)},
          {source.begin() + room - bytes, target.begin() + room - bytes - distance, static_cast<std::int64_t>(bytes)},
          {source.begin() + distance, target.begin() + 200, static_cast<std::int64_t>(bytes)},
          {source.begin() + room - bytes, target.begin() + room / 2 + distance, static_cast<std::int64_t>(bytes)}};
      run_moves(moves, {DataType::u8, DataType::u8, 1.0}, {1});
    }
  }
  for (std::int64_t count = 1; count < 20; ++count) {
    const auto of = [&](std::size_t size) { return static_cast<std::size_t>(count) * size; };
    const Move moves[] = {{source.begin(), target.end() - of(2), count}, {source.end() - of(4), target.begin(), count}};
    run_moves(moves, {DataType::f32, DataType::f16, 1.0}, {1});
  }
}

TEST(CudaMoves, after_an_abort_floats_become_nan_and_integers_stay) {
  for (DataType dtype : {DataType::f16, DataType::bf16, DataType::f32, DataType::f64, DataType::i32}) {
    for (std::size_t misalignment : {0, 1, 2, 8}) {
      const std::size_t bytes = 3001 * size_of(dtype);
      std::vector<std::byte> from(bytes), to(bytes + misalignment), kept(bytes + misalignment, std::byte{0x3C});
      const std::vector<std::byte> before = kept;
      const Move move = {from.data(), to.data() + misalignment, 3001},
                 poisoned = {nullptr, kept.data() + misalignment, 3001};
      for (std::uint32_t word : {0U, 1U}) {
        MoveList list;
        run_moves({&move, 1}, {dtype, dtype, 2.0}, {3}, &word);
        const auto launch = launch_poison({&poisoned, 1}, dtype, {3}, {}, &word, list);
        ASSERT_TRUE(launch);
        run(*launch, list);
        if (word == 0) {
          ASSERT_EQ(kept, before) << name_of(dtype);
        }
        with_type(dtype, [&]<typename T>(T) {
          for (std::size_t i = 0; i < 3001; ++i) {
            double left = 0, right = 0;
            if constexpr (is_half<T>) {
              left = naive::widen(at<T>(to.data() + misalignment, i));
              right = naive::widen(at<T>(kept.data() + misalignment, i));
            } else if constexpr (std::is_floating_point_v<T>) {
              left = at<T>(to.data() + misalignment, i);
              right = at<T>(kept.data() + misalignment, i);
            }
            ASSERT_EQ(std::isnan(left), word == 1 && is_floating(dtype)) << name_of(dtype) << " " << i;
            ASSERT_EQ(std::isnan(right), word == 1 && is_floating(dtype)) << name_of(dtype) << " " << i;
          }
        });
      }
    }
  }
}

// A device fails at such an access, the host would not.
TEST(CudaMovesDeathTest, a_misaligned_access_of_a_kernel_ends_the_program) {
  alignas(16) std::byte bytes[32] = {};
  EXPECT_DEATH((void)load16(bytes + 4), "no multiple of the size");
  std::uint32_t word = 0;
  EXPECT_DEATH(load(bytes + 2, word), "no multiple of the size");
}

}  // namespace
}  // namespace hvd::devices::cuda
