#include <gtest/gtest.h>

#include <sched.h>
#include <atomic>
#include <csignal>
#include <fstream>
#include <numeric>

#include "shm_processes.hpp"
#include "shm_ranks.hpp"

namespace hvd::transport {
namespace {

using testing::RankProcess;
using testing::run_processes;
using testing::Tensors;

class NoExchange final : public Exchange {
 public:
  Status put(std::string_view, ConstBytes) override { return {}; }
  Result<bool> get(Rank, std::string_view, Buffer&) override { return false; }
};

// A link between processes. The processes share no wait words in this test. Therefore they yield instead of sleeping.
struct Linked {
  explicit Linked(RankProcess& process) : world(process.world) {
    auto met = process.meet();
    if (!met) ::_exit(100);
    surroundings.world = &world;
    surroundings.config = &config;
    surroundings.offer<connections::NodePeers>(*met);
    transport = testing::shm_for(surroundings);
    auto connecting = transport->connect(process.node, "world", exchange);
    if (!connecting || yield_until_over(**connecting) != Progress::done) ::_exit(101);
    link = (*connecting)->take();
  }
  ~Linked() { surroundings.ask<connections::NodePeers>()->leave(); }

  template <typename Stepped>
  Progress yield_until_over(Stepped& stepped) {
    for (;;) {
      Progress progress = stepped.step();
      if (progress != Progress::pending) return progress;
      ::sched_yield();
    }
  }

  World world;
  Config config;
  Surroundings surroundings;
  NoExchange exchange;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Link> link;
};

TEST(ShmProcesses, reduce_what_no_other_process_could_see) {
  for (int size : {2, 3, 4}) {
    for (int status : run_processes(size, [size](RankProcess& process) {
           Linked linked(process);
           auto task = linked.link->native()->plan(Collective{});
           for (std::int64_t count : {1, 1000, 20'000, 300'000}) {
             Tensors<float> tensors(DataType::f32, {count, 5, count / 2});
             auto values = tensors.values();
             std::iota(values.begin(), values.end(), static_cast<float>(process.world.rank.value));
             tensors.fill(values);
             task->restart(tensors.segments(), tensors.segments(), Sequence{0});
             if (linked.yield_until_over(*task) != Progress::done) return 1;
             auto result = tensors.values();
             for (std::size_t i = 0; i < result.size(); ++i) {
               if (result[i] !=
                   static_cast<float>(size) * static_cast<float>(i) + static_cast<float>(size * (size - 1) / 2))
                 return 2;
             }
           }
           // All ranks must have finished before any rank leaves.
           Collective barrier;
           barrier.verb = Verb::barrier;
           auto last = linked.link->native()->plan(barrier);
           last->restart({}, {}, Sequence{1});
           return linked.yield_until_over(*last) == Progress::done ? 0 : 3;
         })) {
      EXPECT_EQ(status, 0);
    }
  }
}

TEST(ShmProcesses, fail_their_tasks_when_one_of_them_is_killed_in_the_middle) {
  auto statuses = run_processes(3, [](RankProcess& process) {
    Linked linked(process);
    std::atomic<int> lost{-1};
    linked.surroundings.ask<connections::NodePeers>()->on_lost([&lost](Rank rank) { lost = rank.value; });
    auto task = linked.link->native()->plan(Collective{});
    Tensors<float> tensors(DataType::f32, {1'000'000});
    for (int round = 0;; ++round) {
      task->restart(tensors.segments(), tensors.segments(), Sequence{0});
      for (int step = 0;; ++step) {
        if (process.world.rank == Rank{1} && round == 3 && step == 1) ::raise(SIGKILL);
        if (lost >= 0 && !tensors.values().empty()) {
          linked.link->abort(Error(ErrorCode::peer_lost, "rank " + std::to_string(lost) + " ended"));
        }
        Progress progress = task->step();
        if (progress == Progress::failed) return lost == 1 && task->failure().code == ErrorCode::peer_lost ? 0 : 1;
        if (progress == Progress::done) break;
        ::sched_yield();
      }
    }
  });
  EXPECT_EQ(statuses[0], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]));
  EXPECT_EQ(statuses[2], 0);
}

TEST(ShmProcesses, leave_nothing_in_dev_shm_and_show_their_memory_under_its_name) {
  auto statuses = run_processes(2, [](RankProcess& process) {
    Linked linked(process);
    std::ifstream maps("/proc/self/maps");
    std::string line;
    while (std::getline(maps, line))
      if (line.find("/memfd:horovod/shm/world") != std::string::npos) return 0;
    return 1;
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace hvd::transport
