// Lost messages, lost ranks, and threads that really sleep.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "collectives/registry.hpp"
#include "collectives/schedule/program.hpp"
#include "ranks_in_turn.hpp"
#include "sanitized.hpp"

namespace hvd::collectives {
namespace {

using testing::ConnectedTeams;
using testing::Ensemble;
using testing::made_up_world;
using testing::Part;
using testing::RanksInTurn;
using testing::RankThread;
using testing::run_ranks;

const std::vector<std::string> inproc{"inproc"};
// Enough for several chunks.
const std::size_t death_elements = testing::is_sanitized ? 300'000 : 500'000;

std::vector<Segment> whole(std::vector<std::int32_t>& values) {
  return {Segment{TensorView{values.data(), static_cast<std::int64_t>(values.size()), DataType::i32, {}}, {}}};
}

Collective integers(Verb verb, std::size_t count, int size) {
  Collective collective;
  collective.verb = verb;
  collective.dtype = DataType::i32;
  collective.count = static_cast<std::int64_t>(count);
  collective.root = Seat{size - 1};
  return collective;
}

// Input and output of a collective that gives and takes `count` elements in all.
Part part_of(Verb verb, int rank, int size, std::vector<std::int32_t>& in, std::vector<std::int32_t>& out) {
  auto share = transport::share_of(static_cast<std::int64_t>(in.size()), Seat{rank}, size);
  Part part{whole(in), whole(out)};
  if (verb == Verb::barrier) part = {};
  if (verb == Verb::allgather) part.in[0].view.count = share.count();
  if (verb == Verb::reduce_scatter) part.out[0].view.count = share.count();
  return part;
}

TEST(Faults, a_death_in_the_middle_fails_every_other_rank_with_the_name_of_the_dead) {
  for (const Maker& maker : registry())
    for (Verb verb : {Verb::allreduce, Verb::allgather, Verb::reduce_scatter, Verb::barrier})
      for (const std::vector<int>& shape : {std::vector{2}, {3}, {5}, {8}, {2, 3}}) {
        if (testing::is_sanitized && shape.front() > 3) continue;
        auto algorithm = maker.make();
        RanksInTurn ranks(made_up_world(shape), inproc, 5);
        Collective collective = integers(verb, death_elements, ranks.size());
        if (!algorithm->cost(collective, ranks.team(0)).possible()) continue;
        SCOPED_TRACE(std::string(maker.name) + " " + name_of(verb) + " of " + std::to_string(ranks.size()));
        std::vector<std::vector<std::int32_t>> in(static_cast<std::size_t>(ranks.size()),
                                                  std::vector<std::int32_t>(death_elements, 1)),
            out = in;
        std::vector<Part> parts;
        for (int rank = 0; rank < ranks.size(); ++rank)
          parts.push_back(part_of(verb, rank, ranks.size(), in[static_cast<std::size_t>(rank)],
                                  out[static_cast<std::size_t>(rank)]));
        RanksInTurn::Tasks tasks = ranks.plan(*algorithm, collective);
        ranks.restart(tasks, parts);
        const std::size_t dead = static_cast<std::size_t>(ranks.size()) - 1;
        // The dead one takes part for a while, but never comes to the end of it.
        for (std::size_t rank = 0; rank < tasks.size(); ++rank) (void)tasks[rank]->step();
        ranks.ensemble.hub->kill(Rank{static_cast<std::int32_t>(dead)});
        EXPECT_EQ(ranks.step_until_done(tasks), Progress::failed);
        for (std::size_t rank = 0; rank < dead; ++rank) {
          ASSERT_EQ(tasks[rank]->step(), Progress::failed) << rank;
          EXPECT_EQ(tasks[rank]->failure().code, ErrorCode::peer_lost);
          EXPECT_NE(tasks[rank]->failure().message.find("rank " + std::to_string(dead) + " (host "), std::string::npos)
              << tasks[rank]->failure().message;
        }
        ranks.abort();
      }
}

TEST(Faults, a_lost_message_leaves_the_task_pending_and_tells_whom_it_waits_for) {
  for (const Maker& maker : registry()) {
    auto algorithm = maker.make();
    RanksInTurn ranks(made_up_world({2}), inproc, 5);
    Collective collective = integers(Verb::allreduce, 5, 2);
    if (!algorithm->cost(collective, ranks.team(0)).possible()) continue;
    std::vector<std::int32_t> a(5, 1), b(5, 2);
    RanksInTurn::Tasks tasks = ranks.plan(*algorithm, collective);
    ranks.ensemble.hub->drop_next(Rank{0}, Rank{1}, 1);
    ranks.restart(tasks, {{whole(a), whole(a)}, {whole(b), whole(b)}});
    for (int turn = 0; turn < 1000; ++turn) {
      (void)tasks[0]->step();
      ASSERT_EQ(tasks[1]->step(), Progress::pending) << maker.name;
    }
    EXPECT_EQ(tasks[1]->waiting_for(), Seat{0}) << maker.name;
    ranks.abort();
    EXPECT_EQ(tasks[1]->step(), Progress::failed) << maker.name;
  }
}

TEST(Faults, threads_that_sleep_between_messages_are_woken_for_all_of_them) {
  for (const Maker& maker : registry())
    for (const std::vector<int>& shape : {std::vector{3}, {2, 2}, {1, 3}}) {
      Ensemble ensemble(made_up_world(shape));
      ensemble.hub->delay_randomly(11, 4);
      auto selector = Selector::make(ensemble.config);
      run_ranks(ensemble, [&](RankThread& rank) {
        ConnectedTeams teams(rank, inproc, **selector);
        ASSERT_EQ(testing::drive(teams, rank.wake), Progress::done);
        auto algorithm = maker.make();
        const int size = rank.world.size();
        for (Verb verb : {Verb::allreduce, Verb::barrier, Verb::allgather, Verb::reduce_scatter}) {
          std::vector<std::int32_t> in(3000), out(3000);
          Collective collective = integers(verb, in.size(), size);
          if (!algorithm->cost(collective, teams.world).possible()) continue;
          auto task = algorithm->plan(collective, teams.world);
          for (std::uint64_t batch = 1; batch <= 20; ++batch) {
            rank.note(std::string(maker.name) + " " + name_of(verb) + ", batch " + std::to_string(batch));
            std::fill(in.begin(), in.end(), static_cast<std::int32_t>(batch) + rank.rank().value);
            Part part = part_of(verb, rank.rank().value, size, in, out);
            task->restart(part.in, part.out, Sequence{static_cast<std::uint64_t>(verb) * 1000 + batch});
            ASSERT_EQ(testing::drive(*task, rank.wake), Progress::done) << task->failure().message;
            if (verb != Verb::allreduce) continue;
            for (std::int32_t value : out)
              ASSERT_EQ(value, static_cast<std::int32_t>(batch) * size + size * (size - 1) / 2);
          }
        }
        // A rank that leaves closes its links; the others may still be in their last barrier.
        rank.note("leaving");
      });
    }
}

TEST(Faults, a_rank_that_dies_while_others_sleep_wakes_them) {
  run_ranks({3}, [&](RankThread& rank) {
    auto selector = Selector::make(Config{});
    ConnectedTeams teams(rank, inproc, **selector);
    ASSERT_EQ(testing::drive(teams, rank.wake), Progress::done);
    if (rank.rank() == Rank{1}) {
      rank.hub->kill(Rank{1});
      return;
    }
    std::vector<std::int32_t> data(100, 1);
    Collective collective = integers(Verb::allreduce, data.size(), 3);
    auto task = (*selector)->choose(collective, teams.world).value()->plan(collective, teams.world);
    task->restart(whole(data), whole(data), Sequence{1});
    EXPECT_EQ(testing::drive(*task, rank.wake), Progress::failed);
    EXPECT_NE(task->failure().message.find("rank 1 (host n0"), std::string::npos) << task->failure().message;
    teams.abort(task->failure());
  });
}

}  // namespace
}  // namespace hvd::collectives
