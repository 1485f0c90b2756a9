// How lists of tensors become launches: what each block gets, and what is refused.
#include "devices/cuda/launches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "devices/cuda_moves.hpp"
#include "devices/kernels/tiles.hpp"

namespace hvd::devices::cuda {
namespace {

// No memory is at these addresses.
void* address(std::uint64_t number) {
  return reinterpret_cast<void*>(number);
}

struct Shares {
  std::vector<std::uint64_t> elements_of_block;
  std::vector<std::uint64_t> elements_of_tensor;
};

// Expects that the blocks' runs follow each other without a gap.
Shares shares_of(const Launch& launch, const MoveList& list, std::uint32_t elements_of_tile) {
  Shares shares;
  shares.elements_of_tensor.resize(list.count);
  for (std::uint32_t block = 0; block < launch.blocks; ++block) {
    std::uint64_t elements = 0;
    visit_runs(list, elements_of_tile, Place{block, 0, launch.blocks, threads_per_block},
               [&](const MoveEntry&, std::uint32_t index, std::uint64_t begin, std::uint64_t count) {
                 EXPECT_EQ(begin, shares.elements_of_tensor[index]);
                 shares.elements_of_tensor[index] += count;
                 elements += count;
               });
    shares.elements_of_block.push_back(elements);
  }
  return shares;
}

TEST(CudaLaunches, tensors_of_more_than_2_to_the_31_elements_are_moved_whole) {
  const std::int64_t counts[] = {(std::int64_t{1} << 33) + 5, 1, (std::int64_t{3} << 31) - 1};
  std::vector<Move> moves;
  for (std::int64_t count : counts) moves.push_back({nullptr, address(1 << 20), count});
  for (const auto& [treatment, bytes] : {std::pair{Treatment{DataType::u8, DataType::u8, 1.0}, 1U},
                                         {Treatment{DataType::f16, DataType::f32, 1.0}, 2U},
                                         {Treatment{DataType::f64, DataType::f64, 2.0}, 8U}}) {
    MoveList list;
    const auto launch = launch_moves(moves, treatment, {132}, {}, nullptr, list);
    ASSERT_TRUE(launch);
    const Shares shares = shares_of(*launch, list, tile_elements(bytes));
    for (std::size_t i = 0; i < std::size(counts); ++i)
      EXPECT_EQ(shares.elements_of_tensor[i], static_cast<std::uint64_t>(counts[i]));
  }
}

TEST(CudaLaunches, blocks_get_equal_bytes_whatever_the_sizes_of_the_tensors) {
  std::mt19937_64 random(1);
  std::vector<Move> moves;
  std::uint64_t all = 0;
  for (int i = 0; i < 800; ++i) {
    const auto count = static_cast<std::int64_t>(i % 50 == 0 ? 20'000'000 : 1 + random() % 100'000);
    moves.push_back({address(1 << 20), address(1 << 21), count});
    all += static_cast<std::uint64_t>(count);
  }
  const Chip chip = {132};
  HostDescriptors descriptors(descriptors_of_moves(moves.size(), chip));
  MoveList list;
  const auto launch = launch_moves(moves, {DataType::f32, DataType::f32, 1.0}, chip, descriptors.get(), nullptr, list);
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->kernel, Kernel::move_bytes);
  EXPECT_EQ(launch->blocks, 2112U);
  const Shares shares = shares_of(*launch, list, tile_elements(1));
  const std::uint64_t fair = 4 * all / launch->blocks;
  EXPECT_LE(*std::max_element(shares.elements_of_block.begin(), shares.elements_of_block.end()),
            fair + 800 * 4096 / launch->blocks + 4096);
}

TEST(CudaLaunches, only_large_launches_have_more_blocks_than_run_at_once) {
  const Chip chip = {132};
  for (auto [megabytes, blocks] : {std::pair{1, 256U}, {8, 528U}, {64, 2048U}, {1024, 2112U}}) {
    const Move move = {address(1 << 20), address(1 << 30), std::int64_t{megabytes} << 20};
    MoveList list;
    const auto launch = launch_moves({&move, 1}, {DataType::u8, DataType::u8, 1.0}, chip, {}, nullptr, list);
    ASSERT_TRUE(launch);
    EXPECT_EQ(launch->blocks, blocks) << megabytes << " MB";
  }
}

TEST(CudaLaunches, tiny_tensors_are_spread_over_blocks) {
  std::vector<Move> moves(1000, {address(1 << 20), address(1 << 21), 1});
  const Chip chip = {132};
  HostDescriptors descriptors(descriptors_of_moves(moves.size(), chip));
  MoveList list;
  const auto launch = launch_moves(moves, {DataType::f32, DataType::f32, 1.0}, chip, descriptors.get(), nullptr, list);
  ASSERT_TRUE(launch);
  const Shares shares = shares_of(*launch, list, tile_elements(1));
  EXPECT_LE(*std::max_element(shares.elements_of_block.begin(), shares.elements_of_block.end()), 8U);
}

TEST(CudaLaunches, empty_tensors_and_copies_onto_themselves_need_no_launch) {
  const Move moves[] = {{address(16), address(32), 0}, {address(64), address(64), 100}};
  MoveList list;
  EXPECT_EQ(launch_moves(moves, {DataType::f32, DataType::f32, 1.0}, {1}, {}, nullptr, list)->blocks, 0U);
  EXPECT_EQ(launch_moves({}, {DataType::f32, DataType::f32, 1.0}, {1}, {}, nullptr, list)->blocks, 0U);
  const std::uint32_t word = 0;  // but after an abort they are written
  EXPECT_EQ(launch_moves(moves, {DataType::f32, DataType::f32, 1.0}, {1}, {}, &word, list)->blocks, 1U);
  EXPECT_EQ(launch_moves(moves, {DataType::f32, DataType::f32, 2.0}, {1}, {}, nullptr, list)->blocks, 1U);
}

TEST(CudaLaunches, lists_of_up_to_168_tensors_travel_as_parameters) {
  EXPECT_EQ(descriptors_of_moves(168, {132}), 0U);
  EXPECT_GT(descriptors_of_moves(169, {132}), 169 * sizeof(MoveEntry));
}

TEST(CudaLaunches, conversions_that_make_no_sense_are_refused_by_name) {
  const Move move = {address(16), address(32), 1};
  MoveList list;
  const auto launch = launch_moves({&move, 1}, {DataType::i32, DataType::f32, 1.0}, {1}, {}, nullptr, list);
  ASSERT_FALSE(launch);
  EXPECT_NE(launch.error().message.find("found int32 and float32"), std::string::npos) << launch.error().message;
  EXPECT_FALSE(launch_moves({&move, 1}, {DataType::i32, DataType::i64, 1.0}, {1}, {}, nullptr, list));
  EXPECT_FALSE(launch_moves({&move, 1}, {DataType::boolean, DataType::u8, 1.0}, {1}, {}, nullptr, list));
}

TEST(CudaLaunches, more_tiles_than_a_list_can_number_are_refused) {
  const Move move = {address(16), address(32), std::int64_t{1} << 45};
  MoveList list;
  const auto launch = launch_moves({&move, 1}, {DataType::u8, DataType::u8, 1.0}, {1}, {}, nullptr, list);
  ASSERT_FALSE(launch);
  EXPECT_NE(launch.error().message.find("found 8589934592"), std::string::npos) << launch.error().message;
}

TEST(CudaLaunches, every_kernel_has_a_form_on_the_host_and_a_name_of_its_own) {
  std::set<std::string> names;
  for (const KernelFacts& facts : kernel_facts) {
    EXPECT_TRUE(names.insert(facts.name).second);
    const KernelOnHost* on_host = kernel_on_host(facts.name);
    ASSERT_NE(on_host, nullptr) << facts.name;
    EXPECT_EQ(on_host->parameter_bytes, facts.parameter_bytes);
    EXPECT_LE(facts.parameter_bytes, most_parameter_bytes);
  }
  EXPECT_EQ(kernel_on_host("hvd_nothing"), nullptr);
}

TEST(CudaLaunches, treatments_have_the_kernels_of_their_names) {
  const Move move = {address(16), address(32), 1};
  MoveList list;
  const char* const names[] = {"bool", "u8",   "i8",  "u16", "i16", "i32", "i64",
                               "f16",  "bf16", "f32", "f64", "u32", "u64"};
  for (int from = 0; from < data_type_count; ++from) {
    for (int to = 0; to < data_type_count; ++to) {
      const auto source = static_cast<DataType>(from), target = static_cast<DataType>(to);
      const auto launch = launch_moves({&move, 1}, {source, target, 2.0}, {1}, {}, nullptr, list);
      if (from != to && !(is_floating(source) && is_floating(target))) {
        EXPECT_FALSE(launch);
        continue;
      }
      ASSERT_TRUE(launch);
      std::string expected = "hvd_move_bytes";
      if (is_floating(source)) {
        expected = std::string("hvd_move_") + names[from] + "_" + names[to];
      } else if (source != DataType::boolean) {
        expected = std::string("hvd_scale_") + names[from];
      }
      EXPECT_EQ(facts_of(launch->kernel).name, expected);
    }
  }
}

TEST(CudaLaunchesDeathTest, too_little_room_for_a_long_list_ends_the_program) {
  std::vector<Move> moves(169, {address(16), address(32), 1});
  MoveList list;
  EXPECT_DEATH((void)launch_moves(moves, {DataType::f32, DataType::f32, 1.0}, {1}, {}, nullptr, list),
               "a list of 169 tensors needs 4124 bytes of descriptors");
}

}  // namespace
}  // namespace hvd::devices::cuda
