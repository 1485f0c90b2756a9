#include "collectives/selection/selector.hpp"

#include <gtest/gtest.h>

#include <string>

#include "collectives/registry.hpp"
#include "ranks_in_turn.hpp"

namespace hvd::collectives {
namespace {

using testing::made_up_world;
using testing::RanksInTurn;

Collective of(Verb verb, std::int64_t count, DataType dtype = DataType::f32) {
  Collective collective;
  collective.verb = verb;
  collective.dtype = dtype;
  collective.count = count;
  return collective;
}

// The verbs that some algorithm can carry out over any team.
std::vector<Verb> any_verbs() {
  std::vector<Verb> list;
  for (const VerbRow& row : verbs())
    if (row.moves_data() && !row.needs_power_of_2()) list.push_back(row.verb);
  return list;
}

Config with_algorithm(std::string text) {
  Config config;
  config.algorithm = std::move(text);
  return config;
}

std::string name_of_choice(RanksInTurn& ranks, const Collective& collective, const Team& team) {
  auto algorithm = ranks.selector->choose(collective, team);
  return algorithm ? (*algorithm)->name() : algorithm.error().message;
}

TEST(Selector, never_chooses_an_order_that_is_not_fixed_for_floating_sums) {
  for (int size : {1, 2, 3, 8}) {
    RanksInTurn ranks(made_up_world({size}), {"inproc"});
    for (std::int64_t count = 1; count < (1ll << 30); count *= 8) {
      Collective collective = of(Verb::allreduce, count);
      EXPECT_TRUE((*ranks.selector->choose(collective, ranks.team(0)))->cost(collective, ranks.team(0)).fixed_order);
    }
  }
}

TEST(Selector, may_choose_the_ring_for_large_integers) {
  RanksInTurn ranks(made_up_world({6}), {"inproc"});
  EXPECT_EQ(name_of_choice(ranks, of(Verb::allreduce, 1 << 26, DataType::i32), ranks.team(0)), "ring");
}

// Messages between the ranks of a node would use the same memory, but with more copies.
TEST(Selector, leaves_a_node_to_its_shared_memory) {
  for (int size : {2, 3, 4, 8, 64}) {
    RanksInTurn ranks(made_up_world({size}), {"shm"});
    for (Verb verb : any_verbs())
      for (DataType dtype : {DataType::u8, DataType::f32})
        for (std::int64_t count = 64; count < (1ll << 30); count *= 64)
          EXPECT_EQ(name_of_choice(ranks, of(verb, count, dtype), ranks.team(0)), "native")
              << name_of(verb) << " of " << count << " by " << size;
  }
}

TEST(Selector, stays_with_one_addition_order_for_all_sizes) {
  for (const std::vector<int>& shape : {std::vector{2}, {5}, {8}, {2, 2}, {1, 1, 1}, {1, 3}, {5, 7}}) {
    RanksInTurn ranks(made_up_world(shape), {"inproc"});
    std::string order;
    for (std::int64_t count = 1; count < (1ll << 31); count *= 2) {
      Collective collective = of(Verb::allreduce, count);
      std::string now((*ranks.selector->choose(collective, ranks.team(0)))->addition_order(collective, ranks.team(0)));
      if (order.empty()) order = now;
      EXPECT_EQ(now, order) << count;
    }
  }
}

TEST(Selector, chooses_alike_on_all_ranks_of_uneven_nodes) {
  for (const std::vector<int>& shape : {std::vector{1, 3}, {5, 7}, {4, 1, 3, 2}}) {
    RanksInTurn ranks(made_up_world(shape), {"inproc"});
    for (Verb verb : any_verbs())
      for (std::int64_t count = 1; count < (1ll << 28); count *= 16)
        for (int rank = 1; rank < ranks.size(); ++rank)
          EXPECT_EQ(name_of_choice(ranks, of(verb, count), ranks.team(rank)),
                    name_of_choice(ranks, of(verb, count), ranks.team(0)));
  }
}

TEST(Selector, goes_by_nodes_and_rails_over_several_nodes_whatever_their_shape) {
  for (const std::vector<int>& shape : {std::vector{2, 2}, {4, 4}, {8, 8, 8}, {1, 3}, {2, 3}, {5, 7}, {4, 1, 3, 2}}) {
    RanksInTurn ranks(made_up_world(shape), {"inproc"});
    for (Verb verb : any_verbs())
      for (DataType dtype : {DataType::f32, DataType::i32})
        for (std::int64_t count = 1; count < (1ll << 31); count *= 8)
          EXPECT_EQ(name_of_choice(ranks, of(verb, count, dtype), ranks.team(0)),
                    verb == Verb::alltoall ? "pairwise" : "hierarchical")
              << name_of(verb) << " of " << count << " " << name_of(dtype) << " by " << ranks.size();
  }
}

TEST(Selector, takes_what_the_user_asks_for) {
  RanksInTurn ranks(made_up_world({4}), {"inproc"}, 1, with_algorithm(" allreduce = ring , broadcast=ring"));
  EXPECT_EQ(name_of_choice(ranks, of(Verb::allreduce, 10), ranks.team(0)), "ring");
  EXPECT_EQ(name_of_choice(ranks, of(Verb::broadcast, 10), ranks.team(0)), "ring");
  EXPECT_NE(ranks.selector->explain(of(Verb::allreduce, 10), ranks.team(0)).find("HOROVOD_ALGORITHM"),
            std::string::npos);
  EXPECT_NE(ranks.selector->explain(of(Verb::allreduce, 10), ranks.team(0)).find("bits may change"), std::string::npos);
}

TEST(Selector, says_so_where_the_user_asks_for_the_impossible_and_goes_by_cost) {
  RanksInTurn ranks(made_up_world({4}), {"inproc"}, 1, with_algorithm("allreduce=hierarchical"));
  EXPECT_EQ(name_of_choice(ranks, of(Verb::allreduce, 10), ranks.team(0)), "halving_doubling");
  EXPECT_NE(ranks.selector->explain(of(Verb::allreduce, 10), ranks.team(0)).find("hierarchical was asked for"),
            std::string::npos);
}

TEST(Selector, refuses_names_that_it_does_not_know_and_lists_those_that_it_does) {
  for (const char* text :
       {"allreduce=rign", "allreduce=", "allreduce", "reduce=ring", "barrier=ring", "allreduce=ring,,x"}) {
    auto selector = Selector::make(with_algorithm(text));
    ASSERT_FALSE(selector) << text;
    EXPECT_EQ(selector.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(selector.error().message.find(std::string("HOROVOD_ALGORITHM=") + text), std::string::npos);
  }
  auto selector = Selector::make(with_algorithm("allreduce=rign"));
  for (const char* known : {"ring", "tree", "halving_doubling", "native", "hierarchical", "'rign'"})
    EXPECT_NE(selector.error().message.find(known), std::string::npos) << known;
  EXPECT_TRUE(Selector::make(with_algorithm("")));
  EXPECT_TRUE(Selector::make(with_algorithm("allreduce=ring,")));
}

TEST(Selector, finds_nothing_for_memory_that_no_algorithm_reaches) {
  RanksInTurn ranks(made_up_world({2}), {"inproc"});
  Collective collective = of(Verb::allreduce, 10);
  collective.device = DeviceKind::cuda;
  EXPECT_EQ(ranks.selector->find(collective, ranks.team(0)), nullptr);
  EXPECT_EQ(ranks.selector->explain(collective, ranks.team(0)), "nothing can do this here");
}

TEST(Selector, refuses_with_what_was_wanted_why_nobody_can_and_what_to_do) {
  for (const std::vector<int>& shape : {std::vector{2}, {2, 2}})
    for (Verb verb : any_verbs()) {
      RanksInTurn ranks(made_up_world(shape), {"inproc"});
      Collective collective = of(verb, 10, DataType::bf16);
      collective.device = DeviceKind::cuda;
      auto refused = ranks.selector->choose(collective, ranks.team(0));
      ASSERT_FALSE(refused) << name_of(verb);
      EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
      for (const char* part : {hvd::name_of(verb), "memory of a GPU", "host memory"})
        EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
      collective.device = DeviceKind::host;
      // Without the links no algorithm is possible. The error names the missing links.
      ranks.team(0).link = nullptr;
      if (ranks.team(0).node != nullptr) ranks.team(0).node->link = nullptr;
      refused = ranks.selector->choose(collective, ranks.team(0));
      ASSERT_FALSE(refused) << name_of(verb);
      for (const char* part : {"no transport links all ranks", shape.size() > 1 ? ", the ranks of a node;" : ";"})
        EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
    }
}

TEST(Selector, explains_every_verb_and_size_in_its_table) {
  RanksInTurn ranks(made_up_world({2, 2}), {"inproc"});
  std::string table = ranks.selector->table(ranks.team(0));
  for (const char* part : {"4 ranks on 2 nodes, 2 rails", "allreduce", "allgather", "broadcast", "barrier", "256 MiB",
                           "hierarchical", "inside the node", "along a rail"})
    EXPECT_NE(table.find(part), std::string::npos) << part << " in\n" << table;
}

}  // namespace
}  // namespace hvd::collectives
