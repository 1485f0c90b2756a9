#include "connections/mpi_peers.hpp"

#include <gtest/gtest.h>

#include <tuple>
#include <utility>

#include "made_up_world.hpp"

namespace hvd::connections {
namespace {

// The cards of ranks whose MPI will be started. `addresses`: the interfaces that the MPI may choose from.
std::vector<MpiCard> cards_with(const std::vector<std::string>& addresses) {
  std::vector<MpiCard> cards;
  for (const std::string& text : addresses) {
    MpiCard card;
    card.version = "MPICH 4.0.2 (mpich)";
    card.rank = static_cast<int>(cards.size());
    card.size = static_cast<int>(addresses.size());
    card.addresses = text;
    cards.push_back(card);
  }
  return cards;
}

TEST(MpiPeers, are_matched_by_what_their_mpi_calls_them) {
  World world = testing::made_up_world({2, 1});
  std::vector<MpiCard> cards = cards_with({"10.0.0.1/eth0", "10.0.0.1/eth0", "10.0.0.2/eth0"});
  std::swap(cards[0].rank, cards[2].rank);
  auto ranks = match_ranks(world, cards);
  ASSERT_TRUE(ranks) << ranks.error().message;
  EXPECT_EQ(*ranks, (std::vector{2, 1, 0}));
}

TEST(MpiPeers, do_without_an_mpi_that_would_take_a_bridge_of_both_hosts_for_a_way_between_them) {
  World world = testing::made_up_world({2, 1});
  std::string here = "10.0.0.1/eth0 172.17.0.1/docker0", there = "10.0.0.2/eth0 172.17.0.1/br-1";
  auto ranks = match_ranks(world, cards_with({here, here, there}));
  ASSERT_FALSE(ranks);
  for (const char* words : {"rank 2", "rank 0", "172.17.0.1 (br-1)", "UCX_NET_DEVICES", "HOROVOD_MPI"})
    EXPECT_NE(ranks.error().message.find(words), std::string::npos) << words << " in: " << ranks.error().message;
  // A rank names no address if its MPI already runs, has a fabric or was told which interface to use.
  EXPECT_TRUE(match_ranks(world, cards_with({"", "", there})));
  // On one host the common address belongs to the same interface.
  EXPECT_TRUE(match_ranks(testing::made_up_world({3}), cards_with({here, here, here})));
}

TEST(MpiPeers, find_in_a_card_what_was_written_on_it) {
  MpiCard card = cards_with({"10.0.0.1/eth0"}).front();
  card.refusal = "no";
  card.space = "space";
  card.running = card.over_bridge = card.wanted = true;
  Buffer bytes = bootstrap::encode(card.encode());
  auto read = MpiCard::decode(bootstrap::decode_card(bytes));
  ASSERT_TRUE(read);
  EXPECT_EQ(std::tie(read->refusal, read->version, read->rank, read->size, read->running, read->over_bridge,
                     read->space, read->wanted, read->addresses),
            std::tie(card.refusal, card.version, card.rank, card.size, card.running, card.over_bridge, card.space,
                     card.wanted, card.addresses));
  bytes.pop_back();
  EXPECT_FALSE(MpiCard::decode(bootstrap::decode_card(bytes)));
}

}  // namespace
}  // namespace hvd::connections
