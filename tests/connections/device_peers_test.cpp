#include "connections/device_peers.hpp"

#include <gtest/gtest.h>

#include "made_up_world.hpp"

namespace hvd::connections {
namespace {

DeviceCard card_with(const std::vector<std::string>& kinds) {
  return {posix::CpuMask::range(8, 15), {{"0000:07:00.0", "GPU-1", "A100"}, {"", "MIG-2", ""}}, kinds, 3};
}

TEST(DevicePeers, find_in_a_card_what_was_written_on_it) {
  for (const DeviceCard& card : {card_with({"cuda", "rocm"}), card_with({}), DeviceCard{}}) {
    auto read = DeviceCard::decode(card.encode());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, card);
  }
}

TEST(DevicePeers, refuse_every_damaged_card_and_name_its_rank) {
  const std::string whole = card_with({"cuda"}).encode();
  for (std::size_t length = 1; length < whole.size(); ++length)
    EXPECT_FALSE(DeviceCard::decode(whole.substr(0, length))) << length;
  EXPECT_FALSE(DeviceCard::decode(whole + "x"));
  World world = testing::made_up_world({2, 1});
  world.members[2].devices = whole.substr(1);
  auto peers = DevicePeers::of(world);
  ASSERT_FALSE(peers);
  EXPECT_NE(peers.error().message.find("rank 2"), std::string::npos) << peers.error().message;
}

TEST(DevicePeers, have_a_kind_only_if_every_rank_of_the_group_has_it) {
  World world = testing::made_up_world({2, 1});
  const std::vector<Rank> everybody{Rank{0}, Rank{1}, Rank{2}};
  auto none = DevicePeers::of(world);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->card_of(Rank{0}), nullptr);
  EXPECT_EQ(none->first_without(everybody, "cuda"), Rank{-1}) << "nobody has told anything";

  for (Member& member : world.members) member.devices = card_with({"cuda"}).encode();
  EXPECT_EQ(DevicePeers::of(world)->first_without(everybody, "cuda"), Rank{-1});
  EXPECT_EQ(DevicePeers::of(world)->first_without(everybody, "rocm"), Rank{0});
  world.members[1].devices = card_with({}).encode();
  EXPECT_EQ(DevicePeers::of(world)->first_without(everybody, "cuda"), Rank{1});
  world.members[1].devices = "";
  auto peers = DevicePeers::of(world);
  EXPECT_EQ(peers->first_without(everybody, "cuda"), Rank{1});
  EXPECT_EQ(peers->card_of(Rank{1}), nullptr);
  EXPECT_EQ(*peers->card_of(Rank{2}), card_with({"cuda"}));
}

}  // namespace
}  // namespace hvd::connections
