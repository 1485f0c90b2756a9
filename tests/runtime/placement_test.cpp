#include "runtime/placement.hpp"

#include <gtest/gtest.h>

#include "made_up_world.hpp"

namespace hvd::runtime {
namespace {

using connections::DeviceCard;
using connections::DevicePeers;
using topology::GpuSharing;

posix::CpuMask mask(const char* list) {
  return *posix::CpuMask::parse(list);
}

// Each node has two ranks, and each rank may use the same eight processors and sees the same two GPUs.
World world_with_gpus(int nodes, const std::vector<std::string>& kinds = {}) {
  World world = testing::made_up_world(std::vector<int>(static_cast<std::size_t>(nodes), 2));
  for (Member& member : world.members)
    member.devices = DeviceCard{mask("0-7"), {{"0000:01:00.0", "", ""}, {"0000:02:00.0", "", ""}}, kinds}.encode();
  return world;
}

void tell(World& world, int rank, const char* processors, const char* bus_id, const std::vector<std::string>& kinds) {
  world.members[static_cast<std::size_t>(rank)].devices =
      DeviceCard{mask(processors), {{bus_id, "", ""}}, kinds}.encode();
}

Result<std::optional<OwnPlacement>> decided(World world, int rank, GpuSharing sharing = GpuSharing::if_needed) {
  world.rank = Rank{rank};
  auto peers = DevicePeers::of(world);
  EXPECT_TRUE(peers);
  return decide_placement(world, topology::layout_of(world), *peers, sharing, topology::Machine(), "");
}

TEST(PlacementOfRanks, does_not_touch_nodes_without_gpus) {
  World world = testing::made_up_world({2, 2});
  EXPECT_FALSE(*decided(world, 0));
  tell(world, 2, "0-7", "0000:01:00.0", {});
  EXPECT_FALSE(*decided(world, 0)) << "the other node has the GPU";
  EXPECT_TRUE(*decided(world, 2));
  EXPECT_FALSE(*decided(world, 3)) << "a rank that told nothing stays as it is";
  for (Member& member : world.members) member.devices = DeviceCard{mask("0-7"), {}, {}}.encode();
  EXPECT_FALSE(*decided(world, 0)) << "no rank may use the GPUs of the machine";
}

TEST(PlacementOfRanks, is_equal_on_all_ranks_of_a_node) {
  World world = world_with_gpus(2);
  for (int rank = 0; rank < world.size(); ++rank) {
    auto own = decided(world, rank);
    ASSERT_TRUE(own && *own);
    EXPECT_EQ((*own)->place.gpu, rank % 2);
    EXPECT_EQ((*own)->given, mask("0-7"));
    EXPECT_EQ((*own)->place.cpus, rank % 2 == 0 ? mask("0-3") : mask("4-7"));
    EXPECT_TRUE((*own)->notices.empty());
  }
}

TEST(PlacementOfRanks, is_that_of_their_slots_in_an_elastic_job) {
  World world = world_with_gpus(1);
  for (int rank = 0; rank < 2; ++rank) {
    auto card = DeviceCard::decode(world.members[static_cast<std::size_t>(rank)].devices);
    card->slot = 1 - rank;
    world.members[static_cast<std::size_t>(rank)].devices = card->encode();
  }
  EXPECT_EQ((*decided(world, 0))->place.gpu, 1);
  EXPECT_EQ((*decided(world, 1))->place.gpu, 0);
}

TEST(PlacementOfRanks, warns_once_of_what_is_equal_on_all_nodes) {
  World world = world_with_gpus(3);
  for (int rank = 0; rank < 6; ++rank) tell(world, rank, "0-7", "0000:01:00.0", {});
  tell(world, 4, "0-3", "0000:01:00.0", {});
  tell(world, 5, "0-3", "0000:01:00.0", {});
  std::vector<std::size_t> notices;
  for (int rank = 0; rank < 6; ++rank) notices.push_back((*decided(world, rank))->notices.size());
  EXPECT_EQ(notices, (std::vector<std::size_t>{1, 0, 0, 0, 1, 0})) << "the last node differs";
}

TEST(PlacementOfRanks, fails_on_all_ranks_where_a_plugin_would_use_the_gpus) {
  for (bool has_plugin : {false, true}) {
    std::vector<std::string> kinds;
    if (has_plugin) kinds.emplace_back("cuda");
    World world = world_with_gpus(2, kinds);
    tell(world, 3, "4-11", "0000:02:00.0", kinds);
    for (int rank = 0; rank < 4; ++rank) {
      auto own = decided(world, rank);
      EXPECT_EQ(own.has_value(), !has_plugin);
      if (own) {
        EXPECT_EQ((*own)->notices.size(), rank == 2 ? 1U : 0U);
      } else {
        EXPECT_NE(own.error().message.find("host n1: the launcher's masks contradict"), std::string::npos);
      }
    }
    if (has_plugin) continue;
    EXPECT_EQ((*decided(world, 3))->place.cpus, mask("4-11")) << "it stays as it is";
  }
}

TEST(PlacementOfRanks, may_forbid_sharing_a_gpu) {
  World world = world_with_gpus(1, {"cuda"});
  for (int rank = 0; rank < 2; ++rank) tell(world, rank, "0-7", "0000:01:00.0", {"cuda"});
  EXPECT_TRUE(decided(world, 0));
  auto refused = decided(world, 1, GpuSharing::never);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("2 ranks of this node share 1 GPU, which is forbidden"), std::string::npos);
}

TEST(PlacementOfRanks, tells_nothing_where_there_is_no_driver) {
  Environment environment;
  environment.set("HOROVOD_GPU_ROOT", "/nonexistent");
  EXPECT_EQ(introduce_devices(environment), "");
}

}  // namespace
}  // namespace hvd::runtime
