// Every algorithm of the registry over every transport of the registry, compared with the naive reference.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "collectives/registry.hpp"
#include "exercise.hpp"
#include "transport/registry.hpp"

namespace hvd {
namespace {

using testing::Exercise;
using testing::exercise;
using testing::is_sanitized;
using testing::made_up_world;
using testing::RanksInTurn;

// Under a sanitizer one type of each kind: the type does little more than choose a kernel.
std::vector<DataType> dtypes() {
  if (is_sanitized) return {DataType::boolean, DataType::u8, DataType::bf16, DataType::f64};
  return {DataType::boolean, DataType::u8,  DataType::i8,   DataType::u16, DataType::i16, DataType::i32,
          DataType::i64,     DataType::f16, DataType::bf16, DataType::f32, DataType::f64};
}
constexpr Verb verbs[] = {Verb::allreduce, Verb::allgather, Verb::broadcast, Verb::barrier, Verb::reduce_scatter};

struct Case {
  std::string transport, algorithm;
  Verb verb;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const transport::Maker& transport : transport::registry())
    for (const collectives::Maker& maker : collectives::registry())
      for (Verb verb : verbs)
        if (maker.make()->does(verb)) list.push_back({transport.name, maker.name, verb});
  return list;
}

std::unique_ptr<collectives::Algorithm> algorithm_named(const std::string& name) {
  for (const collectives::Maker& maker : collectives::registry())
    if (name == maker.name) return maker.make();
  return nullptr;
}

std::vector<int> rank_counts() {
  return is_sanitized ? std::vector{1, 2, 3, 5, 8} : std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9};
}

class Conformance : public ::testing::TestWithParam<Case> {
 protected:
  // Runs the body for every number of ranks on one node that the transport reaches.
  void for_every_rank_count(const std::function<void(RanksInTurn&, const collectives::Algorithm&)>& body) {
    auto algorithm = algorithm_named(GetParam().algorithm);
    for (int size : rank_counts()) {
      RanksInTurn ranks(made_up_world({size}), {GetParam().transport}, static_cast<std::uint64_t>(size));
      if (!ranks.is_reached()) GTEST_SKIP() << GetParam().transport << " does not reach ranks that are threads";
      ASSERT_TRUE(ranks.is_connected());
      body(ranks, *algorithm);
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(Conformance, every_type_size_and_placement_gives_what_the_reference_gives) {
  for_every_rank_count([&](RanksInTurn& ranks, const collectives::Algorithm& algorithm) {
    for (DataType dtype : dtypes())
      for (std::int64_t count : {0, 1, 7, 4096})
        for (bool in_place : {false, true})
          for (int segments : {1, 5}) {
            Exercise what;
            what.dtype = dtype;
            what.count = count;
            what.in_place = in_place;
            what.segments = segments;
            what.root = ranks.size() - 1;
            exercise(ranks, algorithm, GetParam().verb, what);
            if (HasFatalFailure()) return;
          }
  });
}

TEST_P(Conformance, every_operation_and_scale_gives_what_the_reference_gives) {
  Verb verb = GetParam().verb;
  if (verb != Verb::allreduce && verb != Verb::reduce_scatter) return;
  for_every_rank_count([&](RanksInTurn& ranks, const collectives::Algorithm& algorithm) {
    for (DataType dtype : dtypes())
      for (ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product})
        for (auto [prescale, postscale] : {std::pair{1.0, 1.0}, {2.0, 0.5}, {1.0, 0.5}, {2.0, 1.0}}) {
          bool scales = prescale != 1.0 || postscale != 1.0;
          if (scales && (op == ReduceOp::product || dtype == DataType::boolean)) continue;
          Exercise what;
          what.dtype = dtype;
          what.op = op;
          what.count = 1003;
          what.segments = 3;
          what.prescale = prescale;
          what.postscale = postscale;
          exercise(ranks, algorithm, verb, what, 1);
          if (HasFatalFailure()) return;
        }
  });
}

TEST_P(Conformance, every_root_even_shares_and_joined_ranks_give_what_the_reference_gives) {
  Verb verb = GetParam().verb;
  for_every_rank_count([&](RanksInTurn& ranks, const collectives::Algorithm& algorithm) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      Exercise what;
      what.count = 1000 + rank;
      what.segments = 4;
      what.root = rank;
      what.even_counts = true;
      if (verb == Verb::allreduce) what.joined = rank;
      exercise(ranks, algorithm, verb, what, 1);
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(Conformance, a_million_elements_give_what_the_reference_gives) {
  if (is_sanitized) GTEST_SKIP() << "too long under a sanitizer";
  int turn = 0;
  for_every_rank_count([&](RanksInTurn& ranks, const collectives::Algorithm& algorithm) {
    // A type, a placement and a number of tensors per number of ranks; over all rank counts and algorithms each has its
    // turn.
    Exercise what;
    what.dtype =
        std::array{DataType::f32, DataType::bf16, DataType::u8, DataType::f64}[static_cast<std::size_t>(turn % 4)];
    what.in_place = turn % 2 == 0;
    what.segments = turn % 3 == 0 ? 1 : 40;
    what.count = (1 << 20) + 3;
    what.root = ranks.size() / 2;
    ++turn;
    exercise(ranks, algorithm, GetParam().verb, what, 1);
  });
}

TEST_P(Conformance, messages_that_arrive_late_and_in_any_order_change_nothing) {
  auto algorithm = algorithm_named(GetParam().algorithm);
  for (int size : {2, 3, 5, 8})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      RanksInTurn ranks(made_up_world({size}), {GetParam().transport}, seed);
      if (!ranks.is_reached()) GTEST_SKIP() << GetParam().transport << " does not reach ranks that are threads";
      ASSERT_TRUE(ranks.is_connected());
      ranks.ensemble.hub->delay_randomly(seed, 9);
      Exercise what;
      what.count = 3000;
      what.segments = 3;
      exercise(ranks, *algorithm, GetParam().verb, what, 4);
      if (HasFatalFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Every, Conformance, ::testing::ValuesIn(cases()),
                         [](const ::testing::TestParamInfo<Case>& entry) {
                           return entry.param.transport + "_" + entry.param.algorithm + "_" + name_of(entry.param.verb);
                         });

// ---- several nodes -------------------------------------------------------------------------------------------------

struct Nodes {
  std::string name;
  std::vector<int> shape;
  testing::Placement placement = testing::Placement::block;
};

std::vector<Nodes> shapes() {
  using testing::Placement;
  std::vector<Nodes> list;
  for (int each : {1, 2, 3, 4, 5, 6, 7, 8}) list.push_back({"two_of_" + std::to_string(each), {each, each}});
  list.push_back({"three_of_2", {2, 2, 2}});
  list.push_back({"one_and_3", {1, 3}});
  list.push_back({"two_and_3", {2, 3}});
  list.push_back({"five_and_7", {5, 7}});
  list.push_back({"four_1_3_2", {4, 1, 3, 2}});
  list.push_back({"cyclic_2_3", {2, 3}, Placement::cyclic});
  list.push_back({"cyclic_5_7", {5, 7}, Placement::cyclic});
  list.push_back({"cyclic_3_3_3", {3, 3, 3}, Placement::cyclic});
  return list;
}

class SeveralNodes : public ::testing::TestWithParam<std::tuple<std::string, Nodes>> {
 protected:
  // Inside the nodes by one transport, between them by whatever reaches: in tests that is inproc.
  void for_hierarchical(const std::function<void(RanksInTurn&, const collectives::Algorithm&)>& body) {
    const auto& [transport, nodes] = GetParam();
    RanksInTurn ranks(made_up_world(nodes.shape, nodes.placement), {transport, "inproc"}, 7);
    if (!ranks.is_reached()) GTEST_SKIP() << transport << " does not reach ranks that are threads";
    ASSERT_TRUE(ranks.is_connected());
    body(ranks, *algorithm_named("hierarchical"));
  }
};

TEST_P(SeveralNodes, hierarchical_gives_what_the_reference_gives) {
  for_hierarchical([&](RanksInTurn& ranks, const collectives::Algorithm& algorithm) {
    for (Verb verb : {Verb::allreduce, Verb::broadcast, Verb::barrier})
      for (DataType dtype : {DataType::f32, DataType::bf16, DataType::i64, DataType::boolean})
        for (std::int64_t count : {0, 1, 7, 4096})
          for (bool in_place : {false, true})
            for (int segments : {1, 5}) {
              Exercise what;
              what.dtype = dtype;
              what.count = count;
              what.in_place = in_place;
              what.segments = segments;
              what.root = static_cast<int>(count) % ranks.size();
              if (verb == Verb::allreduce && dtype != DataType::boolean) {
                what.prescale = 2.0;
                what.postscale = 0.5;
              }
              exercise(ranks, algorithm, verb, what);
              if (HasFatalFailure()) return;
            }
  });
}

TEST_P(SeveralNodes, hierarchical_works_with_every_root_and_joined_rank) {
  for_hierarchical([&](RanksInTurn& ranks, const collectives::Algorithm& algorithm) {
    for (int rank = 0; rank < ranks.size(); ++rank)
      for (Verb verb : {Verb::allreduce, Verb::broadcast}) {
        Exercise what;
        what.count = 501;
        what.segments = 4;
        what.root = rank;
        if (verb == Verb::allreduce) what.joined = rank;
        exercise(ranks, algorithm, verb, what, 1);
        if (HasFatalFailure()) return;
      }
  });
}

TEST_P(SeveralNodes, hierarchical_carries_many_chunks_at_once) {
  if (is_sanitized) GTEST_SKIP() << "too long under a sanitizer";
  for_hierarchical([&](RanksInTurn& ranks, const collectives::Algorithm& algorithm) {
    for (Verb verb : {Verb::allreduce, Verb::broadcast}) {
      Exercise what;
      what.count = (1 << 20) + 3;
      what.segments = 30;
      what.root = ranks.size() - 1;
      exercise(ranks, algorithm, verb, what, 1);
    }
  });
}

std::vector<std::string> transports() {
  std::vector<std::string> names;
  for (const transport::Maker& maker : transport::registry()) names.emplace_back(maker.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Every, SeveralNodes,
                         ::testing::Combine(::testing::ValuesIn(transports()), ::testing::ValuesIn(shapes())),
                         [](const ::testing::TestParamInfo<SeveralNodes::ParamType>& entry) {
                           return std::get<0>(entry.param) + "_" + std::get<1>(entry.param).name;
                         });

}  // namespace
}  // namespace hvd
