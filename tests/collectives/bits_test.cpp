// The bits of a result do not depend on how tensors were fused, on the order of messages, or on the rank that reads it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "collectives/registry.hpp"
#include "ranks_in_turn.hpp"
#include "sanitized.hpp"

namespace hvd::collectives {
namespace {

using testing::made_up_world;
using testing::Part;
using testing::RanksInTurn;

// Tensors for all ranks, with values over 30 decades. Therefore almost every sum of three values depends on the order
// of addition.
class Tensors {
 public:
  Tensors(int ranks, std::uint64_t seed) : sizes_{1, 2, 3, 5, 8, 64, 100, 257, 1000, 1023, 2500, 4096, 6000, 9001} {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> exponent(-15, 15), sign(-1, 1);
    for (int rank = 0; rank < ranks; ++rank)
      for (std::int64_t size : sizes_) {
        std::vector<float> values(static_cast<std::size_t>(size));
        for (float& value : values)
          value = static_cast<float>(std::copysign(std::pow(10.0, exponent(random)), sign(random)));
        inputs_.push_back(std::move(values));
      }
  }

  std::size_t count() const { return sizes_.size(); }
  std::vector<float>& input(std::size_t rank, std::size_t tensor) { return inputs_[rank * count() + tensor]; }

  // Reduces the tensors in the given batches. Returns the results by rank and tensor.
  template <typename Run>
  std::vector<std::vector<float>> reduce(std::size_t ranks, const std::vector<std::vector<std::size_t>>& batches,
                                         Run run) {
    std::vector<std::vector<float>> results(inputs_.size());
    for (std::size_t i = 0; i < results.size(); ++i) results[i].resize(inputs_[i].size());
    for (const auto& batch : batches) {
      std::vector<Part> parts(ranks);
      std::int64_t total = 0;
      for (std::size_t tensor : batch) total += sizes_[tensor];
      for (std::size_t rank = 0; rank < ranks; ++rank)
        for (std::size_t tensor : batch) {
          auto view = [&](std::vector<float>& values) {
            return Segment{TensorView{values.data(), sizes_[tensor], DataType::f32}};
          };
          parts[rank].in.push_back(view(input(rank, tensor)));
          parts[rank].out.push_back(view(results[rank * count() + tensor]));
        }
      run(parts, total);
    }
    return results;
  }

 private:
  std::vector<std::int64_t> sizes_;
  std::vector<std::vector<float>> inputs_;
};

std::vector<std::vector<std::size_t>> composition(std::size_t tensors, std::mt19937_64& random) {
  std::vector<std::size_t> order(tensors);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::vector<std::size_t>> batches(1);
  for (std::size_t tensor : order) {
    if (!batches.back().empty() && random() % 3 == 0) batches.emplace_back();
    batches.back().push_back(tensor);
  }
  return batches;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Collective sum_of_floats(std::int64_t count = 0) {
  Collective collective;
  collective.postscale = 1.0 / 3;
  collective.count = count;
  return collective;
}

// Counts, over all ranks and batch compositions, the tensors whose result differs from rank 0's with the first
// composition.
template <typename Run>
int count_differences(RanksInTurn& ranks, Run run) {
  const int compositions = testing::is_sanitized ? 8 : 50;
  auto size = static_cast<std::size_t>(ranks.size());
  Tensors tensors(ranks.size(), 4711);
  std::vector<std::vector<float>> first;
  int differences = 0;
  for (int turn = 0; turn < compositions; ++turn) {
    auto results = tensors.reduce(size, composition(tensors.count(), ranks.random()), run);
    if (first.empty()) first.assign(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(tensors.count()));
    for (std::size_t i = 0; i < results.size(); ++i) differences += !same_bits(results[i], first[i % tensors.count()]);
  }
  return differences;
}

int count_differences_of(RanksInTurn& ranks, const Algorithm& algorithm, const Collective& collective) {
  RanksInTurn::Tasks tasks = ranks.plan(algorithm, collective);
  return count_differences(
      ranks, [&](const std::vector<Part>& parts, std::int64_t) { ASSERT_EQ(ranks.run(tasks, parts), Progress::done); });
}
int count_differences_of(RanksInTurn& ranks, const Algorithm& algorithm) {
  return count_differences_of(ranks, algorithm, sum_of_floats());
}

TEST(Bits, are_equal_on_all_ranks_and_in_any_batch_where_the_order_is_called_fixed) {
  for (const char* transport : {"inproc", "shm"})
    for (int size : {2, 3, 4, 5, 7, 8})
      for (const Maker& maker : registry()) {
        auto algorithm = maker.make();
        RanksInTurn ranks(made_up_world({size}), {transport}, 99);
        if (!ranks.is_reached()) continue;
        Cost cost = algorithm->cost(sum_of_floats(1000), ranks.team(0));
        if (!algorithm->does(Verb::allreduce) || !cost.possible() || !cost.fixed_order) continue;
        EXPECT_EQ(count_differences_of(ranks, *algorithm), 0)
            << algorithm->name() << " over " << transport << ", " << size;
      }
}

TEST(Bits, of_a_ring_change_with_the_batch_so_it_does_not_call_its_order_fixed) {
  RanksInTurn ranks(made_up_world({4}), {"inproc"}, 99);
  for (const Maker& maker : registry())
    if (std::string_view(maker.name) == "ring") {
      EXPECT_FALSE(maker.make()->cost(sum_of_floats(1000), ranks.team(0)).fixed_order);
      EXPECT_GT(count_differences_of(ranks, *maker.make()), 0);
    }
}

TEST(Bits, of_adasum_are_equal_on_all_ranks_and_for_50_batch_compositions) {
  Collective collective = sum_of_floats();
  collective.verb = Verb::adasum;
  for (const std::vector<int>& shape : {std::vector{2}, {4}, {8}, {2, 2}, {1, 3}}) {
    RanksInTurn ranks(made_up_world(shape), {"inproc"}, 99);
    EXPECT_EQ(count_differences_of(ranks, *ranks.selector->choose(collective, ranks.team(0)).value(), collective), 0)
        << ranks.size();
  }
}

TEST(Bits, are_equal_over_several_nodes_whatever_their_shape) {
  using testing::Placement;
  for (const auto& [shape, placement] : {std::pair{std::vector{2, 2}, Placement::block},
                                         {{3, 3, 3}, Placement::cyclic},
                                         {{5, 7}, Placement::block},
                                         {{2, 3}, Placement::cyclic}}) {
    RanksInTurn ranks(made_up_world(shape, placement), {"inproc"}, 99);
    for (const Maker& maker : registry())
      if (std::string_view(maker.name) == "hierarchical") {
        EXPECT_EQ(count_differences_of(ranks, *maker.make()), 0);
      }
  }
}

TEST(Bits, are_equal_when_the_selector_chooses_anew_for_every_batch) {
  for (const std::vector<int>& shape : {std::vector{2}, {3}, {6}, {8}, {2, 2}, {1, 1, 1}, {1, 3}}) {
    RanksInTurn ranks(made_up_world(shape), {"inproc"}, 99);
    int differences = count_differences(ranks, [&](const std::vector<Part>& parts, std::int64_t total) {
      Collective collective = sum_of_floats(total);
      RanksInTurn::Tasks tasks = ranks.plan(*ranks.selector->choose(collective, ranks.team(0)).value(), collective);
      ASSERT_EQ(ranks.run(tasks, parts), Progress::done);
    });
    EXPECT_EQ(differences, 0) << ranks.size() << " ranks";
  }
}

TEST(Bits, of_algorithms_with_equal_addition_orders_are_equal) {
  for (int size : {2, 3, 4, 5, 6, 7, 8, 9}) {
    RanksInTurn ranks(made_up_world({size}), {"inproc"}, 99);
    Tensors tensors(size, 17);
    std::vector<std::vector<std::size_t>> all{composition(tensors.count(), ranks.random()).front()};
    std::vector<std::vector<float>> first;
    int compared = 0;
    for (const Maker& maker : registry()) {
      auto algorithm = maker.make();
      if (!algorithm->does(Verb::allreduce) || !algorithm->cost(sum_of_floats(1000), ranks.team(0)).possible())
        continue;
      if (algorithm->addition_order(sum_of_floats(), ranks.team(0)) != "fixed pairing") continue;
      RanksInTurn::Tasks tasks = ranks.plan(*algorithm, sum_of_floats());
      auto results = tensors.reduce(
          static_cast<std::size_t>(size), all,
          [&](const std::vector<Part>& parts, std::int64_t) { ASSERT_EQ(ranks.run(tasks, parts), Progress::done); });
      if (first.empty()) first = results;
      for (std::size_t i = 0; i < results.size(); ++i)
        EXPECT_TRUE(same_bits(results[i], first[i])) << algorithm->name();
      ++compared;
    }
    EXPECT_EQ(compared, size == 2 ? 3 : 2);
  }
}

TEST(Bits, of_six_ranks_follow_the_documented_addition_tree) {
  RanksInTurn ranks(made_up_world({6}), {"inproc"}, 99);
  std::vector<float> x{1e8f, 3.0f, -1e8f, 0.25f, 7.5f, -2e7f}, found(6);
  std::vector<Part> parts(6);
  for (std::size_t rank = 0; rank < 6; ++rank) {
    parts[rank].in = {Segment{TensorView{&x[rank], 1, DataType::f32}}};
    parts[rank].out = {Segment{TensorView{&found[rank], 1, DataType::f32}}};
  }
  for (const Maker& maker : registry()) {
    std::string_view name = maker.name;
    if (name != "tree" && name != "halving_doubling") continue;
    RanksInTurn::Tasks tasks = ranks.plan(*maker.make(), Collective{});
    ASSERT_EQ(ranks.run(tasks, parts), Progress::done);
    for (float value : found) EXPECT_EQ(value, ((x[0] + x[1]) + x[4]) + ((x[2] + x[3]) + x[5])) << name;
  }
}

}  // namespace
}  // namespace hvd::collectives
