// Every algorithm of the registry over every transport of the registry, compared with the naive reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/reduce_op.hpp"
#include "base/transports.hpp"
#include "collectives/registry.hpp"
#include "exercise.hpp"
#include "transport/registry.hpp"

namespace hvd {
namespace {

using testing::Exercise;
using testing::exercise;
using testing::is_sanitized;
using testing::made_up_world;
using testing::Placement;
using testing::RanksInTurn;

// Under a sanitizer only one type of each kind is tested, because the type only chooses a kernel. Ranks take turns in
// one thread here, so that there are no races to look for.
std::vector<DataType> dtypes() {
  if (is_sanitized) return {DataType::boolean, DataType::u8, DataType::bf16, DataType::f64};
  return testing::every_data_type();
}
std::vector<DataType> dtypes_across_nodes() {
  if (is_sanitized) return {DataType::bf16, DataType::boolean};
  return {DataType::f32, DataType::bf16, DataType::i64, DataType::boolean};
}

std::vector<int> rank_counts() {
  return is_sanitized ? std::vector{1, 2, 3, 5, 8} : std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9};
}

std::unique_ptr<collectives::Algorithm> algorithm_named(const std::string& name) {
  for (const collectives::Maker& maker : collectives::registry())
    if (name == maker.name) return maker.make();
  return nullptr;
}

// ---- one node ------------------------------------------------------------------------------------------------------

struct Case {
  std::string transport, algorithm;
  Verb verb;
  bool for_many;  // more than one rank

  std::string name() const { return transport + "_" + algorithm + "_" + name_of(verb); }
  friend void PrintTo(const Case& entry, std::ostream* out) { *out << entry.name(); }
};

// The cases that one rank or two ranks of a node can carry out.
std::vector<Case> cases() {
  std::vector<Case> list;
  for (const transport::Maker& transport : transport::registry()) {
    RanksInTurn one(made_up_world({1}), {transport.name}), two(made_up_world({2}), {transport.name});
    if (!two.is_reached()) continue;  // here all ranks are threads
    for (const collectives::Maker& maker : collectives::registry())
      for (const VerbRow& row : verbs()) {
        Collective collective;
        collective.verb = row.verb;
        auto algorithm = maker.make();
        bool by_two = algorithm->cost(collective, two.team(0)).possible();
        if (by_two || algorithm->cost(collective, one.team(0)).possible())
          list.push_back({transport.name, maker.name, row.verb, by_two});
      }
  }
  return list;
}

// Ranks that are threads cannot use these transports. Each has a test of conformance elsewhere.
constexpr std::pair<std::string_view, const char*> tested_elsewhere[] = {
    {"mpi", "tests/multiprocess/mpi_conformance.cpp"}, {"nccl", "tests/nccl/conformance_test.cpp"}};

TEST(Transports, that_threads_cannot_use_are_tested_elsewhere) {
  for (const transport::Maker& maker : transport::registry()) {
    const bool is_reached = RanksInTurn(made_up_world({2}), {maker.name}).is_reached();
    const bool is_elsewhere =
        std::ranges::any_of(tested_elsewhere, [&](const auto& it) { return it.first == maker.name; });
    EXPECT_NE(is_reached, is_elsewhere) << maker.name << ": conformance of a transport is tested here by ranks that "
                                        << "are threads, or elsewhere, in a test that this table names";
  }
}

TEST(Transports, reach_what_their_rows_tell_to_explain) {
  for (const transport::Maker& maker : transport::registry()) {
    const TransportRow row = transport_row(maker.name);
    if (!row.within_node && !row.between_nodes) continue;  // connects no processes
    const bool in_node = RanksInTurn(made_up_world({2}), {maker.name}).is_reached();
    const bool between = RanksInTurn(made_up_world({1, 1}), {maker.name}).is_reached();
    if (!in_node && !between) continue;  // tested elsewhere
    EXPECT_EQ(in_node, row.within_node) << maker.name;
    EXPECT_EQ(between, row.between_nodes) << maker.name;
  }
}

template <typename Wanted>
std::vector<Case> cases_that(Wanted wanted) {
  std::vector<Case> list = cases();
  std::erase_if(list, [&](const Case& entry) { return !wanted(entry); });
  return list;
}

class Conformance : public ::testing::TestWithParam<Case> {
 protected:
  // Calls body(ranks, run) for every number of ranks on one node. run(what, batches) runs one exercise.
  template <typename Body>
  void for_every_rank_count(Body body) {
    auto algorithm = algorithm_named(GetParam().algorithm);
    int exercised = 0;
    for (int size : rank_counts()) {
      RanksInTurn ranks(made_up_world({size}), {GetParam().transport}, static_cast<std::uint64_t>(size));
      ASSERT_TRUE(ranks.is_connected());
      body(ranks, [&](const Exercise& what, int batches) {
        exercised += exercise(ranks, *algorithm, GetParam().verb, what, batches);
        return !HasFailure();
      });
      if (HasFailure()) return;
    }
    EXPECT_GT(exercised, 0) << "nothing was tested";
  }
};

TEST_P(Conformance, every_type_size_and_placement_gives_what_the_reference_gives) {
  for_every_rank_count([&](RanksInTurn& ranks, auto run) {
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
            if (!run(what, 2)) return;
          }
  });
}

TEST_P(Conformance, every_root_even_shares_and_joined_ranks_give_what_the_reference_gives) {
  for_every_rank_count([&](RanksInTurn& ranks, auto run) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      Exercise what;
      what.count = 1000 + rank;
      what.segments = 4;
      what.root = rank;
      what.even_counts = true;
      if (GetParam().verb == Verb::allreduce) what.joined = rank;
      if (!run(what, 1)) return;
    }
  });
}

#if !HVD_SANITIZED  // the test would take too long under this sanitizer
TEST_P(Conformance, a_million_elements_give_what_the_reference_gives) {
  int turn = 0;
  for_every_rank_count([&](RanksInTurn& ranks, auto run) {
    // What is special about 4, 6, 7 and 9 ranks is already tested with fewer elements.
    if (ranks.size() == 4 || ranks.size() == 6 || ranks.size() == 7 || ranks.size() == 9) return;
    // Each number of ranks gets one type, one placement and one number of tensors. Over all rank counts and algorithms,
    // each of these is used.
    Exercise what;
    what.dtype =
        std::array{DataType::f32, DataType::bf16, DataType::u8, DataType::f64}[static_cast<std::size_t>(turn % 4)];
    what.in_place = turn % 2 == 0;
    what.segments = turn % 3 == 0 ? 1 : 40;
    what.count = (1 << 20) + 3;
    what.root = ranks.size() / 2;
    ++turn;
    run(what, 1);
  });
}
#endif

class Reductions : public Conformance {};

TEST_P(Reductions, of_every_operation_and_scale_give_what_the_reference_gives) {
  for_every_rank_count([&](RanksInTurn&, auto run) {
    for (DataType dtype : dtypes())
      for (std::size_t at = 0; at < reduce_op_count; ++at)
        for (auto [prescale, postscale] : {std::pair{1.0, 1.0}, {2.0, 0.5}, {1.0, 0.5}, {2.0, 1.0}}) {
          const auto op = static_cast<ReduceOp>(at);
          bool scales = prescale != 1.0 || postscale != 1.0;
          if (scales && (op == ReduceOp::product || dtype == DataType::boolean)) continue;
          Exercise what;
          what.dtype = dtype;
          what.op = op;
          what.count = 1003;
          what.segments = 3;
          what.prescale = prescale;
          what.postscale = postscale;
          if (!run(what, 1)) return;
        }
  });
}

// A joined rank contributes zeros and gets no result. The sizes lead through every path of shared memory.
TEST_P(Reductions, take_what_a_rank_lacks_for_zeros_and_give_it_nothing) {
  for_every_rank_count([&](RanksInTurn& ranks, auto run) {
    for (std::int64_t count : {1, 40, 1'500, 100'003})
      for (auto lacks : {Exercise::Lacks::both, Exercise::Lacks::input, Exercise::Lacks::output}) {
        if (count > 10'000 && ranks.size() > 4) continue;
        Exercise what;
        what.dtype = count == 40 ? DataType::bf16 : DataType::f32;
        what.count = count;
        what.segments = count == 1'500 ? 1 : 5;
        what.joined = static_cast<int>(count) % ranks.size();
        what.lacks = lacks;
        what.in_place = lacks == Exercise::Lacks::both;
        what.prescale = 2.0;
        what.postscale = 0.5;
        if (!run(what, 1)) return;
      }
  });
}

class Messages : public ::testing::TestWithParam<Case> {};

TEST_P(Messages, that_arrive_late_and_in_any_order_change_nothing) {
  auto algorithm = algorithm_named(GetParam().algorithm);
  for (int size : {2, 3, 5, 8})
    for (std::uint64_t seed = 1; seed <= (is_sanitized ? 2 : 6); ++seed) {
      RanksInTurn ranks(made_up_world({size}), {GetParam().transport}, seed);
      ASSERT_TRUE(ranks.is_connected());
      ranks.ensemble.hub->delay_randomly(seed, 9);
      Exercise what;
      what.count = 3000;
      what.segments = 3;
      bool is_possible =
          !row_of(GetParam().verb).needs_power_of_2() || std::has_single_bit(static_cast<unsigned>(size));
      EXPECT_EQ(exercise(ranks, *algorithm, GetParam().verb, what, 4), is_possible);
      if (HasFailure()) return;
    }
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& entry) {
  return entry.param.name();
}
INSTANTIATE_TEST_SUITE_P(Every, Conformance, ::testing::ValuesIn(cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(Every, Reductions,
                         ::testing::ValuesIn(cases_that([](const Case& entry) { return reduces(entry.verb); })),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(Every, Messages,
                         ::testing::ValuesIn(cases_that([](const Case& entry) { return entry.for_many; })),
                         name_of_case);

#if !HVD_SANITIZED
TEST(Alltoall, exchanges_more_than_2_to_the_31_elements_slow) {
  for (const Case& entry : cases_that([](const Case& one) { return one.verb == Verb::alltoall && one.for_many; })) {
    SCOPED_TRACE(entry.name());
    RanksInTurn ranks(made_up_world({2}), {entry.transport});
    ASSERT_TRUE(ranks.is_connected());
    testing::exchange_giants(ranks, *algorithm_named(entry.algorithm));
  }
}
#endif

// ---- several nodes -------------------------------------------------------------------------------------------------

struct Nodes {
  std::string transport;  // inside the nodes; between nodes the transport is inproc here
  std::string shape_name;
  std::vector<int> shape;
  Placement placement = Placement::block;

  std::string name() const { return transport + "_" + shape_name; }
  friend void PrintTo(const Nodes& nodes, std::ostream* out) { *out << nodes.name(); }
};

std::vector<Nodes> several_nodes() {
  std::vector<Nodes> list;
  for (const transport::Maker& maker : transport::registry()) {
    if (!RanksInTurn(made_up_world({2}), {maker.name}).is_reached()) continue;
    auto add = [&](const char* name, std::vector<int> shape, Placement placement = Placement::block) {
      list.push_back({maker.name, name, std::move(shape), placement});
    };
    add("two_of_2", {2, 2});
    add("two_of_8", {8, 8});
    add("five_and_7", {5, 7});
    add("four_1_3_2", {4, 1, 3, 2});
    add("cyclic_3_3_3", {3, 3, 3}, Placement::cyclic);
    // The algorithm does the same over every transport, so one transport is enough for the other shapes.
    if (std::string(maker.name) != "inproc") continue;
    for (int each : {1, 3, 4, 5, 6, 7}) add(("two_of_" + std::to_string(each)).c_str(), {each, each});
    add("three_of_2", {2, 2, 2});
    add("one_and_3", {1, 3});
    add("two_and_3", {2, 3});
    add("cyclic_2_3", {2, 3}, Placement::cyclic);
    add("cyclic_5_7", {5, 7}, Placement::cyclic);
    add("cyclic_1_4_2", {1, 4, 2}, Placement::cyclic);
  }
  return list;
}

class SeveralNodes : public ::testing::TestWithParam<Nodes> {
 protected:
  SeveralNodes()
      : ranks(made_up_world(GetParam().shape, GetParam().placement), {GetParam().transport, "inproc"}, 7),
        algorithm(algorithm_named("hierarchical")) {
    EXPECT_TRUE(ranks.is_connected());
  }
  bool run(Verb verb, const Exercise& what, int batches) {
    EXPECT_TRUE(exercise(ranks, *algorithm, verb, what, batches)) << name_of(verb) << " is not done";
    return !HasFailure();
  }

  std::vector<Verb> staged_verbs() const {
    std::vector<Verb> list;
    for (const VerbRow& row : verbs())
      if (algorithm->does(row.verb) && row.verb != Verb::adasum) list.push_back(row.verb);  // that is for devices only
    return list;
  }

  RanksInTurn ranks;
  std::unique_ptr<collectives::Algorithm> algorithm;
};

TEST_P(SeveralNodes, hierarchical_gives_what_the_reference_gives) {
  for (Verb verb : staged_verbs())
    for (DataType dtype : dtypes_across_nodes())
      for (std::int64_t count : {0, 1, 7, 4096})
        for (bool in_place : {false, true})
          for (int segments : {1, 5}) {
            Exercise what;
            what.dtype = dtype;
            what.count = count;
            what.in_place = in_place;
            what.segments = segments;
            what.root = static_cast<int>(count) % ranks.size();
            if (reduces(verb) && dtype != DataType::boolean) {
              what.prescale = 2.0;
              what.postscale = 0.5;
            }
            if (!run(verb, what, 2)) return;
          }
}

TEST_P(SeveralNodes, hierarchical_works_with_every_root_and_joined_rank_and_with_even_shares) {
  for (int rank = 0; rank < ranks.size(); ++rank)
    for (Verb verb : staged_verbs()) {
      Exercise what;
      what.count = 501 + rank;
      what.segments = 4;
      what.root = rank;
      what.even_counts = true;
      if (verb != Verb::barrier) what.joined = verb == Verb::broadcast ? (rank + 1) % ranks.size() : rank;
      if (!run(verb, what, 1)) return;
    }
}

TEST_P(SeveralNodes, hierarchical_takes_what_a_rank_lacks_for_zeros_and_gives_it_nothing) {
  for (int rank = 0; rank < ranks.size(); ++rank)
    for (Verb verb : {Verb::allreduce, Verb::reduce_scatter})
      for (auto lacks : {Exercise::Lacks::both, Exercise::Lacks::input, Exercise::Lacks::output}) {
        Exercise what;
        what.count = 3'000 + rank;
        what.segments = 5;
        what.joined = rank;
        what.lacks = lacks;
        what.prescale = 2.0;
        what.postscale = 0.5;
        if (!run(verb, what, 1)) return;
      }
}

// The messages of these verbs inside a node use the node's links.
TEST_P(SeveralNodes, verbs_without_stages_give_what_the_reference_gives) {
  for (const collectives::Maker& maker : collectives::registry())
    for (Verb verb : {Verb::alltoall, Verb::adasum}) {
      algorithm = maker.make();
      if (!algorithm->does(verb)) continue;
      for (DataType dtype : dtypes_across_nodes())
        for (std::int64_t count : {0, 7, 4096}) {
          Exercise what;
          what.dtype = dtype;
          what.count = count;
          what.segments = 5;
          exercise(ranks, *algorithm, verb, what, 2);
          if (HasFailure()) return;
        }
    }
}

#if !HVD_SANITIZED  // the test would take too long under this sanitizer
TEST_P(SeveralNodes, hierarchical_carries_more_chunks_than_it_has_tracks) {
  for (Verb verb : {Verb::allreduce, Verb::broadcast, Verb::allgather, Verb::reduce_scatter}) {
    bool is_by_seat = verb == Verb::allgather || verb == Verb::reduce_scatter;
    std::int64_t chunk = (256 << 10) / 8 * ranks.team(0).rails * (is_by_seat ? ranks.team(0).nodes : 1);
    Exercise what;
    what.dtype = DataType::f64;
    what.count = std::min<std::int64_t>(9 * chunk / 2, 1'300'000) + 3;
    what.segments = 30;
    what.root = ranks.size() - 1;
    if (!run(verb, what, 1)) return;
  }
}
#endif

INSTANTIATE_TEST_SUITE_P(Every, SeveralNodes, ::testing::ValuesIn(several_nodes()),
                         [](const ::testing::TestParamInfo<Nodes>& entry) { return entry.param.name(); });

}  // namespace
}  // namespace hvd
