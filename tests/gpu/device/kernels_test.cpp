// The kernels that no Device function launches yet, on the GPU of this machine: Adasum's sums and combination, and the
// NaN of aborted results. devices/host computes the same.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "devices/cuda/gpu.hpp"
#include "devices/host/host_kernels.hpp"
#include "devices/naive_moves.hpp"

namespace hvd::devices::cuda {
namespace {

using naive::is_half, naive::round_once, naive::with_type;
using Bytes = std::vector<std::byte>;

constexpr DataType floating[] = {DataType::f16, DataType::bf16, DataType::f32, DataType::f64};
constexpr double least_square = 0x1p-511;  // below it a square counts as zero

// Tensors with numbers between -1 and 1, one after the other, each at a multiple of 8 bytes plus `misalignment`.
struct Tensors {
  std::vector<std::size_t> places;
  Bytes bytes;

  Tensors(const std::vector<std::int64_t>& counts, DataType dtype, std::size_t misalignment, std::mt19937_64& random) {
    for (std::int64_t count : counts) {
      places.push_back(bytes.size() + misalignment);
      bytes.resize((places.back() + static_cast<std::size_t>(count) * size_of(dtype) + 7) / 8 * 8);
      with_type(dtype, [&]<typename T>(T) {
        for (std::int64_t i = 0; i < count; ++i) {
          T value{};
          if constexpr (is_half<T> || std::is_floating_point_v<T>)
            value = round_once<T>(std::ldexp(static_cast<double>(random() % 2'000'001) - 1e6, -20));
          std::memcpy(bytes.data() + places.back() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
        }
      });
    }
    bytes.resize(bytes.size() + 8);
  }
  // Aligned, as the kernels of the host need it.
  Bytes tensor(std::size_t index, std::size_t size) const {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(places[index]);
    return {begin, begin + static_cast<std::ptrdiff_t>(size)};
  }
};

class GpuKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    const Environment environment = Environment::of_this_process();
    auto opened = Gpu::open(0, environment);
    ASSERT_TRUE(opened) << opened.error().message;
    gpu = std::move(*opened);
    own = gpu->stream().value();
    context = hvd::cuda::Context::open(**hvd::cuda::open_driver(environment), 0).value();
    kernels = std::make_unique<KernelTable>(context);
    ASSERT_EQ(kernels->lack(), "");
  }
  Memory memory_of(std::size_t bytes, Where where) { return std::move(gpu->allocate(bytes, where, {}).value()); }
  void copy(const void* from, void* to, std::size_t bytes) {
    const Move move{from, to, static_cast<std::int64_t>(bytes)};
    EXPECT_TRUE(gpu->move(stream(), {&move, 1}, {DataType::u8, DataType::u8, 1.0}));
  }
  Memory on_gpu(const void* data, std::size_t bytes) {
    Memory host = memory_of(bytes, Where::on_host), memory = memory_of(bytes, Where::on_device);
    std::memcpy(host.data(), data, bytes);
    copy(host.data(), memory.data(), bytes);
    finish(*gpu, stream());
    return memory;
  }
  Memory on_gpu(const Bytes& bytes) { return on_gpu(bytes.data(), bytes.size()); }
  Bytes bytes_of(const Memory& memory, std::size_t bytes) {
    Memory host = memory_of(bytes, Where::on_host);
    copy(memory.data(), host.data(), bytes);
    finish(*gpu, stream());
    return {host.data(), host.data() + bytes};
  }
  Stream stream() const { return {own.get()}; }
  Chip chip() const { return {static_cast<std::uint32_t>(context->facts().multiprocessors)}; }

  // Launches what `plan` makes with descriptors, which it is given.
  struct Room {
    Memory host, device;
    Descriptors get(std::size_t bytes) const { return {host.data(), device.data(), bytes}; }
  };
  Room room(std::size_t bytes) { return {memory_of(bytes, Where::on_host), memory_of(bytes, Where::on_device)}; }
  void run(const Launch& launch, const Room& room, void* list) {
    if (launch.descriptor_bytes > 0) copy(room.host.data(), room.device.data(), launch.descriptor_bytes);
    const hvd::cuda::Context::Use use(*context);
    if (launch.blocks > 0) {
      EXPECT_TRUE(
          kernels->launch(launch.kernel, launch.blocks, static_cast<hvd::cuda::StreamHandle>(own.get()), list, health));
    }
    finish(*gpu, stream());
  }

  std::vector<AdasumSums> sums_of(const std::vector<AdasumPair>& pairs, DataType dtype, const Memory& sums) {
    const Memory partial = memory_of(bytes_of_partial_sums(pairs, dtype), Where::on_device);
    const std::size_t bytes = descriptors_of_pairs(pairs.size(), chip());
    const Room where = room(bytes);
    SumsList list;
    const auto launches =
        launch_sums(pairs, dtype, partial.data(), reinterpret_cast<AdasumSums*>(sums.data()), where.get(bytes), list);
    EXPECT_TRUE(launches);
    if (!launches) return {};
    run(launches->threads, where, &list);
    run(launches->pairs, where, &list);
    const Bytes found = bytes_of(sums, pairs.size() * sizeof(AdasumSums));
    std::vector<AdasumSums> all(pairs.size());
    std::memcpy(all.data(), found.data(), found.size());
    return all;
  }

  std::unique_ptr<Device> gpu;
  std::shared_ptr<void> own;
  std::shared_ptr<const hvd::cuda::Context> context;
  std::unique_ptr<KernelTable> kernels;
  Health health;
};

TEST_F(GpuKernels, sums_of_Adasum_are_those_of_the_host_and_combinations_have_its_bits) {
  std::mt19937_64 random(1);
  for (DataType dtype : floating) {
    for (std::size_t misalignment : {std::size_t{0}, size_of(dtype)}) {
      for (std::size_t many : {1, 127, 200}) {
        std::vector<std::int64_t> counts(many);
        for (std::int64_t& count : counts) count = static_cast<std::int64_t>(random() % 3000);
        counts.back() = 70'001;
        const Tensors left(counts, dtype, misalignment, random), right(counts, dtype, misalignment, random);
        const Memory lefts = on_gpu(left.bytes), rights = on_gpu(right.bytes), results = on_gpu(left.bytes);
        std::vector<AdasumPair> pairs;
        for (std::size_t i = 0; i < many; ++i)
          pairs.push_back({lefts.data() + left.places[i], rights.data() + right.places[i],
                           results.data() + left.places[i], counts[i]});
        const Memory in_memory = memory_of(many * sizeof(AdasumSums), Where::on_device);
        const auto sums = sums_of(pairs, dtype, in_memory);

        const double scale = 1.0 / 3;
        const std::size_t bytes = descriptors_of_pairs(many, chip());
        const Room where = room(bytes);
        CombinationList list;
        const auto launch = launch_combination(pairs, dtype, reinterpret_cast<const AdasumSums*>(in_memory.data()),
                                               scale, chip(), where.get(bytes), list);
        ASSERT_TRUE(launch);
        run(*launch, where, &list);
        const Bytes found = bytes_of(results, left.bytes.size());
        for (std::size_t i = 0; i < many; ++i) {
          const std::size_t size = static_cast<std::size_t>(counts[i]) * size_of(dtype);
          const Bytes a = left.tensor(i, size), b = right.tensor(i, size);
          const Products expected = products_kernel(dtype)(a.data(), b.data(), counts[i]);
          const double allowed = 1e-15 * static_cast<double>(counts[i] + 10) * (expected.left + expected.right);
          ASSERT_NEAR(sums[i].dot, expected.dot, allowed) << name_of(dtype) << ", pair " << i << " of " << many;
          ASSERT_NEAR(sums[i].left, expected.left, allowed);
          ASSERT_NEAR(sums[i].right, expected.right, allowed);
          const auto weight = [&](double square) {
            return (square < least_square ? 1.0 : 1.0 - sums[i].dot / (2 * square)) * scale;
          };
          Bytes combined(size);
          if (size == 0) continue;
          weighted_sum_kernel(dtype)(a.data(), b.data(), combined.data(), counts[i],
                                     {weight(sums[i].left), weight(sums[i].right)});
          ASSERT_EQ(std::memcmp(found.data() + left.places[i], combined.data(), size), 0)
              << name_of(dtype) << ", pair " << i << " of " << many;
        }
      }
    }
  }
}

TEST_F(GpuKernels, results_become_NaN_only_after_an_abort) {
  std::mt19937_64 random(2);
  const Memory word = memory_of(4, Where::on_host);  // at the same address for the GPU
  for (DataType dtype : floating) {
    const std::vector<std::int64_t> counts = {1, 100, 70'001, 3};
    const Tensors tensors(counts, dtype, size_of(dtype), random);
    const Memory results = on_gpu(tensors.bytes);
    std::vector<Move> moves;
    for (std::size_t i = 0; i < counts.size(); ++i)
      moves.push_back({nullptr, results.data() + tensors.places[i], counts[i]});
    for (std::uint32_t aborted : {0U, 1U}) {
      std::memcpy(word.data(), &aborted, sizeof aborted);
      const std::size_t bytes = descriptors_of_moves(moves.size(), chip());
      const Room where = room(bytes);
      MoveList list;
      const auto launch =
          launch_poison(moves, dtype, chip(), where.get(bytes), reinterpret_cast<AbortWord>(word.data()), list);
      ASSERT_TRUE(launch);
      run(*launch, where, &list);
      Bytes found = bytes_of(results, tensors.bytes.size());
      if (aborted == 0) {
        ASSERT_EQ(found, tensors.bytes) << name_of(dtype);
        continue;
      }
      for (std::size_t i = 0; i < counts.size(); ++i) {
        with_type(dtype, [&]<typename T>(T) {
          for (std::int64_t k = 0; k < counts[i]; ++k) {
            T value;
            std::memcpy(&value, found.data() + tensors.places[i] + static_cast<std::size_t>(k) * sizeof(T), sizeof(T));
            double number = 0;
            if constexpr (is_half<T>) number = static_cast<double>(widen(value));
            if constexpr (std::is_floating_point_v<T>) number = static_cast<double>(value);
            ASSERT_TRUE(std::isnan(number)) << name_of(dtype) << ", tensor " << i << ", element " << k;
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace hvd::devices::cuda
