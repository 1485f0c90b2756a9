// Lost ranks, stopped ranks, lost messages, and threads that really sleep.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <latch>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "collectives/registry.hpp"
#include "guarded_memory.hpp"
#include "ranks_in_turn.hpp"
#include "sanitized.hpp"
#include "transport/shm/regions.hpp"

namespace hvd::collectives {
namespace {

using testing::ConnectedTeams;
using testing::Ensemble;
using testing::GuardedMemory;
using testing::made_up_world;
using testing::Part;
using testing::RanksInTurn;
using testing::RankThread;
using testing::run_ranks;

const std::vector<std::string> inproc{"inproc"};

std::vector<Segment> whole(std::vector<std::int32_t>& values) {
  return {Segment{TensorView{values.data(), static_cast<std::int64_t>(values.size()), DataType::i32}}};
}

Collective integers(Verb verb, std::size_t count, int size) {
  Collective collective;
  collective.verb = verb;
  collective.dtype = row_of(verb).takes_floats_only() ? DataType::f32 : DataType::i32;
  collective.count = static_cast<std::int64_t>(count);
  collective.root = Seat{size - 1};
  return collective;
}

// One rank's part of a collective. The two views have as many elements as the whole collective takes and gives.
Part part_of(Verb verb, int rank, int size, Segment in, Segment out) {
  auto share = transport::share_of(in.view.count, Seat{rank}, size);
  if (verb == Verb::barrier) return {};
  if (verb == Verb::allgather) in.view.count = share.count();
  if (verb == Verb::reduce_scatter) out.view.count = share.count();
  if (verb != Verb::alltoall) return {{in}, {out}};
  std::vector<std::int64_t> splits(static_cast<std::size_t>(size), in.view.count / size);
  in.view.count = out.view.count = in.view.count / size * size;
  return {{in}, {out}, splits, splits};
}

// ---- a seat that dies, or that stops and wakes up again, at every possible point ----

// One collective of ranks that take turns. Each rank's tensors have their own pages of memory. The last rank is the
// victim.
class Scene {
 public:
  // If `in_regions`, the tensors are in shared regions: other ranks may read them, but not write them.
  Scene(const std::vector<int>& shape, const std::string& transport, const Algorithm& algorithm, Verb verb,
        std::size_t elements, bool in_regions)
      : in_regions_(in_regions),
        elements_(elements),
        size_(std::accumulate(shape.begin(), shape.end(), 0)),
        memory_(std::make_shared<GuardedMemory>(static_cast<std::size_t>(size_) * part_bytes())),
        ranks(
            made_up_world(shape), {transport, "inproc"}, 5, small_slabs(),
            [&](RankThread& rank) {
              if (!in_regions_) return;
              rank.surroundings.offer<transport::shm::SharedRegions>(std::make_shared<transport::shm::SharedRegions>());
              rank.surroundings.ask<transport::shm::SharedRegions>()->add({memory_, memory_->begin()}, part_bytes(),
                                                                          rank.rank().value);
            }),
        collective_(integers(verb, elements, size_)) {
    is_possible_ = algorithm.cost(collective_, ranks.team(0)).possible();
    if (!is_possible_) return;
    tasks = ranks.plan(algorithm, collective_);
    std::vector<Part> parts;
    for (int rank = 0; rank < size_; ++rank) {
      auto tensor = [&](std::size_t which) {
        auto* data = reinterpret_cast<std::int32_t*>(part(rank)) + which * elements_;
        std::fill_n(data, elements_, rank + 1);
        return Segment{TensorView{data, static_cast<std::int64_t>(elements_), DataType::i32}};
      };
      Segment in = tensor(0), out = in_regions_ ? in : tensor(1);
      parts.push_back(part_of(verb, rank, size_, in, out));
    }
    ranks.restart(tasks, parts);
    outcomes.assign(tasks.size(), Progress::pending);
  }
  ~Scene() {
    for (int rank = 0; rank < size_; ++rank) protect(rank, PROT_READ | PROT_WRITE);
    ranks.abort();
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  bool is_possible() const { return is_possible_; }
  int victim() const { return size_ - 1; }
  bool is_over(int rank) const { return outcomes[static_cast<std::size_t>(rank)] != Progress::pending; }

  void step(int rank) {
    auto index = static_cast<std::size_t>(rank);
    if (!is_over(rank)) outcomes[index] = tasks[index]->step();
    // does what an engine does: aborts the rank's links
    if (outcomes[index] == Progress::failed) ranks.abort(rank, tasks[index]->failure());
  }
  // Lets all ranks take turns until the victim has had `turns` turns. False if the victim is done before.
  bool run_until_victims_turn(int turns) {
    for (int turn = 0; turn < turns && !is_over(victim()); ++turn)
      for (int rank = 0; rank < size_; ++rank) step(rank);
    return !is_over(victim());
  }
  // Lets the other ranks take turns until they cannot go on without the victim.
  void run_survivors() {
    for (int turn = 0; turn < 200; ++turn)
      for (int rank = 0; rank < victim(); ++rank) step(rank);
  }
  // From now on nobody may touch the tensors of the survivors.
  void seal_survivors() {
    for (int rank = 0; rank < victim(); ++rank) protect(rank, in_regions_ ? PROT_READ : PROT_NONE);
  }

 private:
  static Config small_slabs() {
    Config config;
    config.slab_chunk_bytes = 16 << 10;
    return config;
  }
  std::size_t part_bytes() const {
    std::size_t page = GuardedMemory::page(), bytes = 2 * elements_ * sizeof(std::int32_t);
    return (bytes + page - 1) / page * page;
  }
  std::byte* part(int rank) const { return memory_->begin() + static_cast<std::size_t>(rank) * part_bytes(); }
  void protect(int rank, int protection) { ASSERT_EQ(::mprotect(part(rank), part_bytes(), protection), 0); }

  const bool in_regions_;
  const std::size_t elements_;
  const int size_;
  std::shared_ptr<GuardedMemory> memory_;

 public:
  RanksInTurn ranks;
  RanksInTurn::Tasks tasks;
  std::vector<Progress> outcomes;

 private:
  Collective collective_;
  bool is_possible_ = false;
};

struct Fault {
  std::string transport;
  Verb verb;
  bool in_regions = false;

  std::string name() const { return transport + (in_regions ? "_regions_" : "_") + name_of(verb); }
  friend void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name(); }
};

class FaultsInEveryPhase : public ::testing::TestWithParam<Fault> {
 protected:
  // Calls body(scene) for every algorithm, shape and size, and for every point at which the victim can stop.
  template <typename Body>
  void for_every_stop(Body body) {
    const auto& [transport, verb, in_regions] = GetParam();
    // One size that travels in one chunk, and one in many chunks.
    const std::vector<std::size_t> sizes = {60, testing::is_sanitized ? 30'000u : 100'000u};
    int stops = 0;
    for (const Maker& maker : registry())
      for (const std::vector<int>& shape : {std::vector{2}, {3}, {2, 3}, {3, 2}})
        for (std::size_t elements : sizes) {
          if (in_regions && (std::string_view(maker.name) != "native" || shape.size() > 1)) continue;
          auto algorithm = maker.make();
          auto make_scene = [&] {
            return std::make_unique<Scene>(shape, transport, *algorithm, verb, elements, in_regions);
          };
          auto scene = make_scene();
          if (!scene->is_possible()) continue;
          int turns = 0;
          while (scene->run_until_victims_turn(1)) ++turns;
          ASSERT_EQ(scene->outcomes.back(), Progress::done);
          // If there are very many points, takes about a dozen of them, always with the first and the last.
          int stride = std::max(1, turns / (testing::is_sanitized ? 4 : 12));
          for (int stop = 0; stop <= turns; stop += stop + stride > turns && stop < turns ? turns - stop : stride) {
            SCOPED_TRACE(std::string(maker.name) + " of " + ::testing::PrintToString(shape) + " ranks, " +
                         std::to_string(elements) + " elements, after " + std::to_string(stop) + " of " +
                         std::to_string(turns) + " turns");
            scene.reset();
            scene = make_scene();
            ASSERT_TRUE(scene->run_until_victims_turn(stop));
            body(*scene);
            ++stops;
            if (HasFailure()) return;
          }
        }
    EXPECT_GT(stops, 0) << "nothing was tested";
  }
};

TEST_P(FaultsInEveryPhase, fail_whoever_needs_the_dead_with_its_name) {
  for_every_stop([](Scene& scene) {
    scene.ranks.ensemble.hub->kill(Rank{scene.victim()});
    scene.run_survivors();
    const std::string dead = "rank " + std::to_string(scene.victim());
    const bool is_one_node = scene.ranks.team(0).node == nullptr;
    int told = 0;
    for (int rank = 0; rank < scene.victim(); ++rank) {
      auto index = static_cast<std::size_t>(rank);
      if (scene.outcomes[index] == Progress::failed) {
        const Error& error = scene.tasks[index]->failure();
        EXPECT_EQ(error.code, ErrorCode::peer_lost);
        EXPECT_NE(error.message.find(dead), std::string::npos) << error.message;
        ++told;
      }
    }
    for (int rank = 0; rank < scene.victim(); ++rank)
      if (!scene.is_over(rank)) {
        // In a job of several nodes a rank may have no link to the dead one. Then its engine learns of the death from
        // other ranks.
        EXPECT_FALSE(is_one_node) << "rank " << rank << " still waits";
        EXPECT_GT(told, 0);
        scene.ranks.abort(rank, Error(ErrorCode::peer_lost, dead + " ended"));
        scene.step(rank);
        EXPECT_TRUE(scene.is_over(rank));
      }
  });
}

TEST_P(FaultsInEveryPhase, leave_survivors_of_a_stopped_rank_pending_and_their_tensors_untouched) {
  for_every_stop([](Scene& scene) {
    scene.run_survivors();
    for (int rank = 0; rank < scene.victim(); ++rank) {
      auto index = static_cast<std::size_t>(rank);
      EXPECT_NE(scene.outcomes[index], Progress::failed) << scene.tasks[index]->failure().message;
      if (scene.is_over(rank)) continue;
      Seat waits_for = scene.tasks[index]->waiting_for();
      EXPECT_TRUE(waits_for.value >= 0 && waits_for.value <= scene.victim() && waits_for.value != rank)
          << "rank " << rank << " waits for seat " << waits_for.value;
    }
    // The survivors give up. From here on neither their own tasks nor the victim's task, when it wakes up, may touch
    // their tensors.
    for (int rank = 0; rank < scene.victim(); ++rank)
      scene.ranks.abort(rank, Error(ErrorCode::timeout, "the last rank does not answer"));
    scene.seal_survivors();
    for (int turn = 0; turn < 100; ++turn) scene.step(scene.victim());
    for (int rank = 0; rank < scene.victim(); ++rank) {
      scene.step(rank);
      EXPECT_TRUE(scene.is_over(rank)) << "rank " << rank;
    }
    for (int turn = 0; turn < 100; ++turn) scene.step(scene.victim());
  });
}

std::vector<Fault> faults() {
  std::vector<Fault> list;
  for (const char* transport : {"inproc", "shm"})
    for (const VerbRow& row : verbs())
      if (row.moves_data()) list.push_back({transport, row.verb});
  list.push_back({"shm", Verb::allreduce, true});
  return list;
}
INSTANTIATE_TEST_SUITE_P(Every, FaultsInEveryPhase, ::testing::ValuesIn(faults()),
                         [](const ::testing::TestParamInfo<Fault>& entry) { return entry.param.name(); });

// ---- over TCP: the kernel decides what has arrived at which turn ----

TEST(FaultsOverTcp, end_the_wait_of_all_whenever_a_rank_dies) {
  const std::size_t elements = testing::is_sanitized ? 100'000 : 300'000;
  int failures = 0;
  std::mt19937_64 random(31);
  for (const Maker& maker : registry())
    for (const VerbRow& row : verbs())
      for (const std::vector<int>& shape : {std::vector{2}, {4}, {2, 3}}) {
        const Verb verb = row.verb;
        auto algorithm = maker.make();
        RanksInTurn ranks(made_up_world(shape), {"tcp"}, random());
        const int size = ranks.size(), dead = size - 1;
        Collective collective = integers(verb, elements, size);
        if (!algorithm->cost(collective, ranks.team(0)).possible()) continue;
        SCOPED_TRACE(std::string(maker.name) + " " + name_of(verb) + " of " + ::testing::PrintToString(shape));
        std::vector<std::vector<std::int32_t>> in(static_cast<std::size_t>(size),
                                                  std::vector<std::int32_t>(elements, 1)),
            out = in;
        std::vector<Part> parts;
        for (int rank = 0; rank < size; ++rank) {
          auto index = static_cast<std::size_t>(rank);
          parts.push_back(part_of(verb, rank, size, whole(in[index])[0], whole(out[index])[0]));
        }
        RanksInTurn::Tasks tasks = ranks.plan(*algorithm, collective);
        ASSERT_EQ(ranks.run(tasks, parts), Progress::done);  // this run makes the connections
        ranks.restart(tasks, parts);
        for (std::uint64_t turn = random() % 6; turn > 0; --turn)
          for (auto& task : tasks)
            if (task->step() == Progress::done) turn = 1;
        ranks.kill(dead);
        std::vector<Progress> outcomes(static_cast<std::size_t>(dead), Progress::pending);
        auto deadline = Deadline::after(std::chrono::seconds(60));
        while (std::count(outcomes.begin(), outcomes.end(), Progress::pending) > 0 && !deadline.passed())
          for (int rank = 0; rank < dead; ++rank) {
            auto index = static_cast<std::size_t>(rank);
            if (outcomes[index] == Progress::pending) outcomes[index] = tasks[index]->step();
            // does what an engine does: aborts the rank's links
            if (outcomes[index] == Progress::failed) ranks.abort(rank, tasks[index]->failure());
          }
        for (int rank = 0; rank < dead; ++rank) {
          auto index = static_cast<std::size_t>(rank);
          ASSERT_NE(outcomes[index], Progress::pending) << "rank " << rank << " still waits";
          if (outcomes[index] != Progress::failed) continue;
          const Error& error = tasks[index]->failure();
          EXPECT_EQ(error.code, ErrorCode::peer_lost);
          EXPECT_NE(error.message.find("(host n"), std::string::npos) << error.message;
          ++failures;
        }
      }
  EXPECT_GT(failures, 0) << "nothing was tested";
}

// ---- messages ----

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

class SleepingThreads : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(over, SleepingThreads, ::testing::Values("inproc", "shm", "tcp"),
                         [](const ::testing::TestParamInfo<std::string>& entry) { return entry.param; });

TEST_P(SleepingThreads, are_woken_for_all_that_comes) {
  const std::vector<std::string> transports{GetParam(), "inproc"};
  for (const Maker& maker : registry())
    for (const std::vector<int>& shape : {std::vector{3}, {2, 2}, {1, 3}}) {
      Ensemble ensemble(made_up_world(shape));
      ensemble.hub->delay_randomly(11, 4);
      auto selector = Selector::make(ensemble.config);
      run_ranks(ensemble, [&](RankThread& rank) {
        ConnectedTeams teams(rank, transports, **selector);
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
            Part part = part_of(verb, rank.rank().value, size, whole(in)[0], whole(out)[0]);
            task->restart(part.in, part.out, Sequence{static_cast<std::uint64_t>(verb) * 1000 + batch});
            ASSERT_EQ(testing::drive(*task, rank.wake, teams), Progress::done) << task->failure().message;
            if (verb != Verb::allreduce) continue;
            for (std::int32_t value : out)
              ASSERT_EQ(value, static_cast<std::int32_t>(batch) * size + size * (size - 1) / 2);
          }
        }
        // The rank leaves and closes its links. Other ranks may still be in their last barrier.
        rank.note("leaving");
      });
    }
}

TEST_P(SleepingThreads, are_woken_by_a_death) {
  const std::vector<std::string> transports{GetParam(), "inproc"};
  std::latch connected(3);
  run_ranks({3}, [&](RankThread& rank) {
    auto selector = Selector::make(Config{});
    ConnectedTeams teams(rank, transports, **selector);
    ASSERT_EQ(testing::drive(teams, rank.wake), Progress::done);
    std::vector<std::int32_t> data(100, 1);
    Collective collective = integers(Verb::allreduce, data.size(), 3);
    auto task = (*selector)->choose(collective, teams.world).value()->plan(collective, teams.world);
    task->restart(whole(data), whole(data), Sequence{1});
    EXPECT_EQ(testing::drive(*task, rank.wake, teams), Progress::done);  // over TCP this makes the connections
    connected.arrive_and_wait();
    if (rank.rank() == Rank{1}) return rank.die();
    task->restart(whole(data), whole(data), Sequence{2});
    EXPECT_EQ(testing::drive(*task, rank.wake, teams), Progress::failed);
    EXPECT_NE(task->failure().message.find("rank 1"), std::string::npos) << task->failure().message;
    teams.abort(task->failure());
  });
}

}  // namespace
}  // namespace hvd::collectives
