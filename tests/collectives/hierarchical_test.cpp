// The parts of the hierarchical collectives: how tensors are cut, and in which order the stages run.
#include <gtest/gtest.h>

#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/hierarchical/node_shares.hpp"
#include "collectives/hierarchical/pipeline.hpp"
#include "collectives/hierarchical/rail_shares.hpp"
#include "collectives/registry.hpp"
#include "ranks_in_turn.hpp"

namespace hvd::collectives::hierarchical {
namespace {

using testing::made_up_world;
using testing::Part;
using testing::Placement;
using testing::RanksInTurn;

NodeShares shares_of(const Team& team, std::span<const std::int64_t> counts, std::int64_t total) {
  Collective collective;
  collective.verb = Verb::allgather;
  collective.dtype = DataType::f64;
  NodeShares shares(team, collective);
  shares.resize({}, counts);
  shares.restart(total);
  return shares;
}

// Returns the elements that a rail carries of a batch with the numbers 0, 1, 2 …
std::vector<double> carried(const NodeShares& shares, const SegmentArray& batch, std::int64_t chunk, int node,
                            int rail) {
  std::vector<Segment> segments;
  shares.append_carried(batch, chunk, node, rail, segments);
  std::vector<double> values;
  for (const Segment& segment : segments) {
    const auto* data = static_cast<const double*>(segment.view.data);
    values.insert(values.end(), data, data + segment.view.count);
  }
  return values;
}

TEST(NodeShares, let_the_rails_carry_every_element_once_and_evenly_for_uneven_shares) {
  for (auto [shape, placement] : {std::pair{std::vector{2, 2}, Placement::block},
                                  {{2, 3}, Placement::cyclic},
                                  {{4, 1, 3, 2}, Placement::block},
                                  {{3, 3, 3}, Placement::cyclic}})
    for (std::int64_t scale : {0, 1, 3, 30'000, 170'000}) {
      RanksInTurn ranks(made_up_world(shape, placement), {"inproc"});
      std::vector<std::int64_t> counts;
      for (int seat = 0; seat < ranks.size(); ++seat) counts.push_back(scale * (seat * seat % 4));
      std::vector<double> numbers(static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0)));
      std::iota(numbers.begin(), numbers.end(), 0.0);
      auto total = static_cast<std::int64_t>(numbers.size());
      SegmentArray batch;
      batch.assign(std::vector{Segment{TensorView{numbers.data(), total, DataType::f64}}}, DataType::f64);
      NodeShares shares = shares_of(ranks.team(0), counts, total);
      std::vector<int> seen(numbers.size(), 0);
      for (std::int64_t chunk = 0; chunk < shares.chunks(); ++chunk)
        for (int node = 0; node < shares.nodes(); ++node)
          for (int rail = 0; rail < shares.rails(); ++rail) {
            std::vector<double> values = carried(shares, batch, chunk, node, rail);
            EXPECT_EQ(static_cast<std::int64_t>(values.size()), shares.carried(chunk, node, rail));
            EXPECT_LE(std::abs(shares.carried(chunk, node, rail) - shares.carried(chunk, node, 0)), 1);
            for (double value : values) ++seen[static_cast<std::size_t>(value)];
          }
      EXPECT_EQ(seen, std::vector<int>(numbers.size(), 1));
      // If there are many chunks, every seat takes part in nearly all of them.
      for (int seat = 0; seat < ranks.size(); ++seat)
        if (shares.chunks() > 1 && counts[static_cast<std::size_t>(seat)] > 1000) {
          EXPECT_GT(shares.piece_count(shares.chunks() - 2, Seat{seat}), 0);
        }
    }
}

TEST(NodeShares, are_own_where_the_ranks_of_all_nodes_contribute_alike) {
  RanksInTurn even(made_up_world({2, 2}), {"inproc"}), uneven(made_up_world({2, 3}), {"inproc"});
  const std::vector<std::int64_t> one_each(4, 1), more_from_one{1, 5, 1, 1};
  auto is_own = [](Team& team, std::span<const std::int64_t> counts, std::int64_t total) {
    return shares_of(team, counts, total).is_own(0);
  };
  EXPECT_TRUE(is_own(even.team(0), one_each, 4));
  EXPECT_TRUE(is_own(even.team(3), {}, 400'000));
  EXPECT_FALSE(is_own(even.team(0), more_from_one, 8));
  EXPECT_TRUE(is_own(even.team(2), more_from_one, 8));  // each node reduces for itself
  EXPECT_FALSE(is_own(uneven.team(4), {}, 500));
}

TEST(RailShares, cover_a_batch_and_pad_only_where_plans_have_counts) {
  constexpr std::int64_t most_of_short = short_chunk_bytes / static_cast<std::int64_t>(sizeof(double));
  for (const std::vector<int>& shape : {std::vector{3, 3}, {3, 5}})
    for (std::int64_t total : {1, 2, 10, 512, 513, 1000, 98304, 98305, 400'000}) {
      RanksInTurn ranks(made_up_world(shape), {"inproc"});
      RailShares shares(ranks.team(0), DataType::f64);
      shares.restart(total);
      std::int64_t next = 0;
      for (std::int64_t chunk = 0; chunk < shares.chunks(); ++chunk)
        for (int rail = 0; rail < 3; ++rail) {
          std::int64_t count = shares.count(chunk, rail), padded = shares.padded_count(chunk, rail);
          if (count > 0) {
            EXPECT_EQ(shares.begin(chunk, rail), next);
          }
          next += count;
          EXPECT_LE(count, padded);
          if (shares.chunk_count(chunk) <= most_of_short) {
            EXPECT_EQ(count, rail == 0 ? shares.chunk_count(chunk) : 0);
            EXPECT_LT(padded, std::max<std::int64_t>(1, 2 * count));
          } else {
            EXPECT_LE(padded, shares.count(chunk, 0) * 5 / 4 + 1);
            if (shape[0] == shape[1]) {
              EXPECT_EQ(padded, shares.count(chunk, 0));
            }
          }
        }
      EXPECT_EQ(next, total);
    }
}

TEST(RailShares, are_dealt_out_sooner_where_one_rank_would_reduce_for_many) {
  RanksInTurn ranks(made_up_world({16, 16}), {"inproc"});
  RailShares shares(ranks.team(0), DataType::f64);
  constexpr std::int64_t most_of_short = short_chunk_bytes_of_node / 16 / static_cast<std::int64_t>(sizeof(double));
  shares.restart(most_of_short);
  EXPECT_EQ(shares.count(0, 0), most_of_short);
  shares.restart(most_of_short + 1);
  EXPECT_EQ(shares.count(0, 0), most_of_short / 16 + 1);
}

// A task that ends when the test tells it to.
class PromptedTask final : public Task {
 public:
  Progress step() override { return is_done ? Progress::done : Progress::pending; }
  void restart(std::span<const Segment>, std::span<const Segment>, Sequence) override {}
  const Error& failure() const override { std::abort(); }
  bool is_done = false;
};

TEST(Pipeline, gives_turns_in_one_order_on_node_and_rail_whatever_is_done_first) {
  Team team;
  for (std::uint64_t seed = 1; seed <= 50; ++seed)
    for (std::int64_t chunks : {0, 1, 3, 4, 5, 9}) {
      std::mt19937_64 random(seed);
      Pipeline pipeline(team);
      pipeline.restart(chunks, Sequence{7});
      std::deque<PromptedTask> tasks;
      std::vector<PromptedTask*> running;
      std::string on_node, on_rail, expected_on_rail;
      std::vector<std::uint64_t> places;
      while (true) {
        while (auto turn = pipeline.next()) {
          bool is_rail = turn->stage == Stage::middle;
          (is_rail ? on_rail : on_node) += std::to_string(turn->chunk) + (turn->stage == Stage::last ? "< " : "> ");
          if (!is_rail) places.push_back(turn->place.value);
          bool has_task = random() % 4 != 0;
          if (has_task) running.push_back(&tasks.emplace_back());
          pipeline.started(*turn, has_task ? running.back() : nullptr);
        }
        if (running.empty()) break;
        std::swap(running[random() % running.size()], running.back());
        running.back()->is_done = true;
        running.pop_back();
      }
      EXPECT_EQ(pipeline.progress(), Progress::done);
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) expected_on_rail += std::to_string(chunk) + "> ";
      EXPECT_EQ(on_rail, expected_on_rail);
      if (chunks == 5) {
        EXPECT_EQ(on_node, "0> 1> 2> 3> 0< 4> 1< 2< 3< 4< ");
      }
      EXPECT_EQ(places.size(), static_cast<std::size_t>(2 * chunks));
      EXPECT_TRUE(std::is_sorted(places.begin(), places.end(), std::less_equal<>()));
    }
}

// Only the links inside nodes and along rails carry messages. This is what makes the algorithm two-level.
TEST(Hierarchical, does_every_verb_without_a_link_between_all_ranks) {
  for (const std::vector<int>& shape : {std::vector{2, 2}, {1, 3}, {3, 2, 4}}) {
    RanksInTurn ranks(made_up_world(shape), {"shm", "inproc"}, 3);
    for (int rank = 0; rank < ranks.size(); ++rank) ranks.team(rank).link = nullptr;
    for (Verb verb : {Verb::allreduce, Verb::allgather, Verb::broadcast, Verb::barrier, Verb::reduce_scatter}) {
      constexpr std::int64_t count = 5003;
      Collective collective;
      collective.verb = verb;
      collective.dtype = DataType::i32;
      collective.count = count;
      auto algorithm = ranks.selector->choose(collective, ranks.team(ranks.size() - 1));
      ASSERT_TRUE(algorithm) << algorithm.error().message;
      RanksInTurn::Tasks tasks = ranks.plan(**algorithm, collective);
      std::vector<std::vector<std::int32_t>> in(static_cast<std::size_t>(ranks.size())), out = in;
      std::vector<Part> parts;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        auto index = static_cast<std::size_t>(rank);
        std::int64_t share = transport::share_of(count, Seat{rank}, ranks.size()).count();
        in[index].assign(static_cast<std::size_t>(verb == Verb::allgather ? share : count), rank + 1);
        out[index].assign(static_cast<std::size_t>(verb == Verb::reduce_scatter ? share : count), -1);
        auto whole = [](std::vector<std::int32_t>& values) {
          return Segment{TensorView{values.data(), static_cast<std::int64_t>(values.size()), DataType::i32}};
        };
        parts.push_back(verb == Verb::barrier ? Part{} : Part{{whole(in[index])}, {whole(out[index])}});
      }
      ASSERT_EQ(ranks.run(tasks, parts), Progress::done) << name_of(verb);
      for (const auto& values : out) {
        std::int32_t sum = ranks.size() * (ranks.size() + 1) / 2;
        if (verb == Verb::allreduce || verb == Verb::reduce_scatter) {
          EXPECT_EQ(values, std::vector<std::int32_t>(values.size(), sum));
        } else if (verb == Verb::allgather) {
          std::vector<std::int32_t> expected;
          for (const auto& share : in) expected.insert(expected.end(), share.begin(), share.end());
          EXPECT_EQ(values, expected);
        } else if (verb == Verb::broadcast && &values != &out.front()) {
          EXPECT_EQ(values, in.front());
        }
      }
    }
  }
}

}  // namespace
}  // namespace hvd::collectives::hierarchical
