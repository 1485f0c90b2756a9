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
  const auto card = Card::decode(cards[1].encode());
  ASSERT_TRUE(card);
  EXPECT_EQ(*card, cards[1]);
  Buffer damaged = cards[1].encode();
  damaged.pop_back();
  EXPECT_FALSE(Card::decode(damaged));
}

TEST_F(NcclCards, agree_on_the_id_of_the_first_and_the_smallest_buffer) {
  const Agreement agreement = agree(world, group, cards);
  EXPECT_EQ(agreement.refusal, "");
  EXPECT_EQ(agreement.id, "where they meet");
  EXPECT_EQ(agreement.buffer_bytes, 8 << 20);
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

}  // namespace
}  // namespace hvd::transport::over_nccl
