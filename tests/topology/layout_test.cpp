#include "topology/layout.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "made_up_world.hpp"
#include "sanitized.hpp"

namespace hvd::topology {
namespace {

using testing::made_up_world;

World seen_by(World world, int rank) {
  world.rank = Rank{rank};
  return world;
}

std::vector<int> ranks_of(const Group& group) {
  std::vector<int> ranks;
  for (Rank rank : group.ranks) ranks.push_back(rank.value);
  return ranks;
}

using Ranks = std::vector<int>;

TEST(Layout, of_one_rank_is_one_node_with_one_rail) {
  Layout layout = layout_of(made_up_world({1}));
  EXPECT_EQ(layout.nodes, 1);
  EXPECT_EQ(layout.rails, 1);
  EXPECT_EQ(ranks_of(layout.node), Ranks{0});
  EXPECT_EQ(ranks_of(layout.rail), Ranks{0});
  EXPECT_TRUE(layout.is_homogeneous());
}

TEST(Layout, of_even_nodes_puts_every_rank_on_a_rail) {
  Layout layout = layout_of(seen_by(made_up_world({3, 3}), 4));
  EXPECT_EQ(ranks_of(layout.node), (Ranks{3, 4, 5}));
  EXPECT_EQ(layout.node.me, Seat{1});
  EXPECT_EQ(ranks_of(layout.rail), (Ranks{1, 4}));
  EXPECT_EQ(layout.rail.me, Seat{1});
  EXPECT_EQ(ranks_of(layout.leaders), (Ranks{0, 3}));
  EXPECT_FALSE(layout.leaders.has_me());
  EXPECT_EQ(layout.my_node, 1);
  EXPECT_TRUE(layout.is_homogeneous());
}

TEST(Layout, of_uneven_nodes_has_as_many_rails_as_the_smallest_node_has_ranks) {
  World world = made_up_world({2, 4, 3});  // 0 1 | 2 3 4 5 | 6 7 8
  Layout on_rail = layout_of(seen_by(world, 3));
  EXPECT_EQ(on_rail.rails, 2);
  EXPECT_EQ(on_rail.largest_node, 4);
  EXPECT_FALSE(on_rail.is_homogeneous());
  EXPECT_EQ(ranks_of(on_rail.rail), (Ranks{1, 3, 7}));
  EXPECT_EQ(ranks_of(on_rail.cross), (Ranks{1, 3, 7}));

  Layout beyond = layout_of(seen_by(world, 4));
  EXPECT_FALSE(beyond.rail.has_me());
  EXPECT_EQ(beyond.rail.size(), 0);
  EXPECT_EQ(ranks_of(beyond.cross), (Ranks{4, 8}));
  EXPECT_EQ(beyond.cross.me, Seat{0});
  EXPECT_EQ(ranks_of(layout_of(seen_by(world, 5)).cross), Ranks{5});
}

TEST(Layout, of_cyclic_placement_groups_by_node_and_not_by_rank) {
  World world = made_up_world({2, 3}, testing::Placement::cyclic);  // ranks of the two nodes: 0 2 | 1 3 4
  Layout layout = layout_of(seen_by(world, 3));
  EXPECT_EQ(ranks_of(layout.node), (Ranks{1, 3, 4}));
  EXPECT_EQ(ranks_of(layout.rail), (Ranks{2, 3}));
  EXPECT_EQ(ranks_of(layout.leaders), (Ranks{0, 1}));
  EXPECT_EQ(layout.node_of, (std::vector<std::int32_t>{0, 1, 0, 1, 1}));
}

TEST(Layout, goes_by_node_id_and_not_by_host_name) {
  World world = made_up_world({2, 2});
  for (Member& member : world.members) member.host = "localhost";  // four containers with the same name, on two nodes
  EXPECT_EQ(layout_of(world).nodes, 2);
}

TEST(Layout, of_a_process_set_counts_its_ranks_alone) {
  World world = seen_by(made_up_world({4, 4}), 5);
  std::vector<Rank> set{Rank{1}, Rank{2}, Rank{5}};
  Layout layout = layout_of(world, set);
  EXPECT_EQ(layout.nodes, 2);
  EXPECT_EQ(layout.rails, 1);
  EXPECT_EQ(ranks_of(layout.world), (Ranks{1, 2, 5}));
  EXPECT_EQ(layout.world.me, Seat{2});
  EXPECT_EQ(ranks_of(layout.node), Ranks{5});
  EXPECT_EQ(ranks_of(layout.rail), (Ranks{1, 5}));
  EXPECT_EQ(layout.node_of, (std::vector<std::int32_t>{0, 0, 1}));
}

TEST(LayoutDeathTest, is_not_made_for_a_rank_outside_of_it) {
  World world = made_up_world({2});
  std::vector<Rank> set{Rank{1}};
  EXPECT_DEATH((void)layout_of(world, set), "not in it");
}

// From how many ranks a layout of many thousand ranks is looked at.
constexpr int few = testing::is_sanitized ? 4 : 20, many = 2 * few;

// Checks properties of the layout that hold for every shape. Checks them as seen by `viewpoints` ranks, evenly spread.
void check_properties(World world, int viewpoints) {
  int step = std::max(1, world.size() / viewpoints);
  for (int rank = 0; rank < world.size(); rank += step) {
    world.rank = Rank{rank};
    Layout layout = layout_of(world);
    ASSERT_EQ(layout.world.size(), world.size());
    ASSERT_EQ(layout.node.rank_at(layout.node.me), world.rank);
    ASSERT_EQ(layout.leaders.size(), layout.nodes);
    ASSERT_EQ(layout.leaders.rank_at(Seat{layout.my_node}), layout.node.ranks.front());
    for (Rank other : layout.node.ranks) ASSERT_EQ(world.member(other).node, world.me().node);
    ASSERT_EQ(layout.rail.has_me(), layout.node.me.value < layout.rails);
    if (!layout.rail.has_me()) continue;
    ASSERT_EQ(layout.rail.size(), layout.nodes);
    ASSERT_EQ(layout.rail.me.value, layout.my_node);
    for (int node = 0; node < layout.nodes; ++node)
      ASSERT_EQ(world.member(layout.rail.rank_at(Seat{node})).node,
                world.member(layout.leaders.rank_at(Seat{node})).node);
  }
}

TEST(Layout, of_4608_nodes_with_6_ranks_each_holds_its_promises) {
  std::vector<int> shape(4608, 6);
  check_properties(made_up_world(shape), many);
  check_properties(made_up_world(shape, testing::Placement::cyclic), many);
}

TEST(Layout, of_27648_ranks_on_uneven_nodes_holds_its_promises) {
  std::vector<int> shape;
  for (int left = 27648, next = 1; left > 0; left -= shape.back(), next = next % 8 + 1)
    shape.push_back(std::min(next, left));
  check_properties(made_up_world(shape), many);
  check_properties(made_up_world(shape, testing::Placement::cyclic), many);
}

TEST(Layout, of_27648_ranks_on_one_node_or_one_each_holds_its_promises) {
  check_properties(made_up_world({27648}), few);
  check_properties(made_up_world(std::vector<int>(27648, 1)), few);
}

TEST(Layout, of_every_small_shape_holds_its_promises) {
  for (int a = 1; a <= 8; ++a)
    for (int b = 1; b <= 8; ++b)
      for (testing::Placement placement : {testing::Placement::block, testing::Placement::cyclic}) {
        check_properties(made_up_world({a, b}, placement), 100);
        check_properties(made_up_world({a, b, 3}, placement), 100);
      }
}

}  // namespace
}  // namespace hvd::topology
