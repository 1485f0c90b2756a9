// What ranks conclude from each other's NCCL.
#include "transport/nccl/card.hpp"

#include <gtest/gtest.h>

#include "made_up_world.hpp"

namespace hvd::transport::over_nccl {
namespace {

class NcclCards : public ::testing::Test {
 protected:
  NcclCards() {
    for (int rank = 0; rank < 3; ++rank) {
      group.ranks.push_back(Rank{rank});
      Card card;
      card.version = 22809;
      card.machine = "a host";
      card.gpu = "GPU-" + std::to_string(rank);
      card.buffer_bytes = (10 - rank) << 20;
      if (rank == 0) card.id = "where they meet";
      cards.push_back(card);
    }
  }
  std::string refusal() const { return agree(world, group, cards).refusal; }

  const World world = testing::made_up_world({3});
  Group group{{}, Seat{0}};
  std::vector<Card> cards;
};

TEST_F(NcclCards, come_as_they_were_sent) {
  cards[1].refusal = "none here";
  cards[1].shares_gpu = true;
  cards[1].sets_nvls = true;
  const auto card = Card::decode(cards[1].encode());
  ASSERT_TRUE(card);
  EXPECT_EQ(*card, cards[1]);
  Buffer damaged = cards[1].encode();
  damaged.pop_back();
  EXPECT_FALSE(Card::decode(damaged));
}

TEST_F(NcclCards, agree_on_the_ids_that_were_drawn_and_the_smallest_buffer) {
  const Agreement agreement = agree(world, group, cards);
  EXPECT_EQ(agreement.refusal, "");
  EXPECT_EQ(agreement.ids, std::vector<std::string>{"where they meet"});
  EXPECT_EQ(agreement.buffer_bytes, 8 << 20);
}

TEST_F(NcclCards, have_an_id_for_each_128_ranks_where_NCCL_takes_several) {
  const World large = testing::made_up_world(std::vector<int>(75, 4));
  Group all{{}, Seat{0}};
  std::vector<Card> of_all(300, cards[1]);
  for (int seat = 0; seat < 300; ++seat) {
    all.ranks.push_back(Rank{seat});
    of_all[static_cast<std::size_t>(seat)].gpu = std::to_string(seat);
    if (draws_id(seat, true)) of_all[static_cast<std::size_t>(seat)].id = "drawn by " + std::to_string(seat);
  }
  EXPECT_EQ(agree(large, all, of_all).ids, (std::vector<std::string>{"drawn by 0", "drawn by 128", "drawn by 256"}));
  EXPECT_TRUE(draws_id(0, false));
  EXPECT_FALSE(draws_id(128, false));
}

TEST_F(NcclCards, leave_NVLS_to_groups_of_whole_nodes) {
  const World nodes = testing::made_up_world({4, 4});
  const auto of = [](std::vector<int> ranks) {
    Group some{{}, Seat{0}};
    for (const int rank : ranks) some.ranks.push_back(Rank{rank});
    return some;
  };
  EXPECT_FALSE(is_part_of_its_nodes(nodes, of({0, 1, 2, 3, 4, 5, 6, 7})));
  EXPECT_FALSE(is_part_of_its_nodes(nodes, of({4, 5, 6, 7})));
  EXPECT_FALSE(is_part_of_its_nodes(nodes, of({0, 1, 2, 3, 4})));
  const Group part = of({0, 1, 4});
  EXPECT_TRUE(is_part_of_its_nodes(nodes, part));
  EXPECT_FALSE(agree(nodes, part, cards).without_nvls) << "2.28 has no way";
  for (Card& card : cards) card.version = 23100;
  EXPECT_TRUE(agree(nodes, part, cards).without_nvls);
  EXPECT_FALSE(agree(world, group, cards).without_nvls);
  cards[1].sets_nvls = true;
  EXPECT_FALSE(agree(nodes, part, cards).without_nvls) << "a user has decided";
}

TEST_F(NcclCards, name_the_rank_that_has_no_NCCL) {
  cards[2].refusal = "NCCL was not found";
  EXPECT_EQ(refusal(), describe(world, Rank{2}) + ": NCCL was not found");
}

TEST_F(NcclCards, name_versions_that_differ) {
  cards[1].version = 22707;
  EXPECT_EQ(refusal(), "all ranks need the same version, found 2.28.9 on " + describe(world, Rank{0}) +
                           " and 2.27.7 on " + describe(world, Rank{1}));
}

TEST_F(NcclCards, name_ranks_on_one_gpu_unless_they_were_told_to_share_it) {
  cards[2].gpu = cards[0].gpu;
  const std::string beginning = describe(world, Rank{0}) + " and " + describe(world, Rank{2}) + " are on one GPU";
  EXPECT_EQ(refusal().substr(0, beginning.size()), beginning);
  cards[2].machine = "another host";
  EXPECT_EQ(refusal(), "");
  cards[2].machine = cards[0].machine;
  for (Card& card : cards) card.shares_gpu = true;
  EXPECT_EQ(refusal(), "");
}

TEST_F(NcclCards, name_the_parts_of_a_gpu_that_ranks_have) {
  for (std::size_t i = 0; i < cards.size(); ++i) cards[i].uuid = "MIG-" + std::to_string(i);
  EXPECT_EQ(refusal(), "") << "of different GPUs";
  cards[2].gpu = cards[0].gpu;
  EXPECT_EQ(refusal(), describe(world, Rank{0}) + " and " + describe(world, Rank{2}) +
                           " are on parts of one GPU (MIG-0 and MIG-2 at " + cards[0].gpu +
                           "), which NCCL does not allow: start at most one rank for each GPU");
}

}  // namespace
}  // namespace hvd::transport::over_nccl
