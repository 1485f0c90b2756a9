#pragma once
// N ranks as threads of one process, for tests, with a made-up world and a hub between the ranks. A watchdog does not
// let a test hang: the test fails and names the ranks that hang.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/settings/config.hpp"
#include "base/world.hpp"
#include "connections/net_peers.hpp"
#include "connections/thread_hub.hpp"
#include "made_up_world.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "transport/transport.hpp"

namespace hvd::testing {

// A place where ranks leave small values for each other. Each key is used once.
class Blackboard {
 public:
  void put(Rank from, std::string_view key, ConstBytes value) {
    std::lock_guard lock(mutex_);
    values_[{from, std::string(key)}].assign(value.begin(), value.end());
    for (posix::WaitWord* word : wakes_) word->post();
  }
  bool get(Rank from, std::string_view key, Buffer& value) {
    std::lock_guard lock(mutex_);
    auto found = values_.find({from, std::string(key)});
    if (found == values_.end()) return false;
    value = found->second;
    return true;
  }
  void wake_when_written(posix::WaitWord* word) {
    std::lock_guard lock(mutex_);
    wakes_.push_back(word);
  }
  void forget(posix::WaitWord* word) {
    std::lock_guard lock(mutex_);
    std::erase(wakes_, word);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<Rank, std::string>, Buffer> values_;
  std::vector<posix::WaitWord*> wakes_;
};

class BlackboardExchange final : public transport::Exchange {
 public:
  BlackboardExchange(std::shared_ptr<Blackboard> board, Rank me) : board_(std::move(board)), me_(me) {}
  Status put(std::string_view key, ConstBytes value) override {
    board_->put(me_, key, value);
    return {};
  }
  Result<bool> get(Rank from, std::string_view key, Buffer& value) override { return board_->get(from, key, value); }

 private:
  std::shared_ptr<Blackboard> board_;
  Rank me_;
};

// The objects that all ranks of one test share.
struct Ensemble {
  explicit Ensemble(World shared_world, Config shared_config = {})
      : world(std::move(shared_world)),
        config(std::move(shared_config)),
        hub(std::make_shared<connections::ThreadHub>(world.size())),
        board(std::make_shared<Blackboard>()),
        wakes(static_cast<std::size_t>(world.size())) {}

  World world;  // its member `rank` has no meaning here
  Config config;
  std::shared_ptr<connections::ThreadHub> hub;
  std::shared_ptr<Blackboard> board;
  std::vector<posix::WaitWord> wakes;  // one wait word for each rank

  // Makes listeners on loopback for all ranks at the first call, and writes their addresses into `world`.
  connections::NetListener take_listener(Rank rank) {
    std::lock_guard lock(listeners_mutex_);
    while (listeners_.size() < world.members.size()) {
      Config loopback = config;
      loopback.network_interfaces = "lo";
      auto listener = connections::NetListener::open(loopback);
      if (!listener) panic(listener.error().message);
      world.members[listeners_.size()].endpoints = listener->endpoints();
      listeners_.push_back(std::move(*listener));
    }
    if (world.secret.empty()) world.secret = "known to the ranks of one test";
    return std::move(listeners_[static_cast<std::size_t>(rank.value)]);
  }

 private:
  std::mutex listeners_mutex_;
  std::vector<connections::NetListener> listeners_;  // one listener for each rank; moved out when taken
};

// One rank, with everything that the layers from transport upwards need.
class RankThread {
 public:
  RankThread(Ensemble& ensemble, Rank rank)
      : ensemble_(ensemble),
        world(ensemble.world),
        wake(ensemble.wakes[static_cast<std::size_t>(rank.value)]),
        hub(ensemble.hub),
        exchange(ensemble.board, rank) {
    world.rank = rank;
    surroundings.world = &world;
    surroundings.config = &ensemble.config;
    surroundings.wake = &wake;
    surroundings.offer<connections::ThreadHub>(hub);
    surroundings.wake_of = [&ensemble](Rank other) { return &ensemble.wakes[static_cast<std::size_t>(other.value)]; };
    board_ = ensemble.board;
    board_->wake_when_written(&wake);
  }
  ~RankThread() {
    board_->forget(&wake);
    if (surroundings.ask<connections::NetPeers>()) surroundings.ask<connections::NetPeers>()->set_wake(nullptr);
  }
  RankThread(const RankThread&) = delete;
  RankThread& operator=(const RankThread&) = delete;

  Rank rank() const { return world.rank; }
  // Makes TCP connections to the other ranks, which must call this too. Call it before other ranks use `world`.
  void use_net() {
    if (surroundings.ask<connections::NetPeers>()) return;
    connections::NetListener listener = ensemble_.take_listener(world.rank);
    world.secret = ensemble_.world.secret;
    for (std::size_t i = 0; i < world.members.size(); ++i)
      world.members[i].endpoints = ensemble_.world.members[i].endpoints;
    auto net = connections::NetPeers::start(world, ensemble_.config, std::move(listener));
    if (!net) panic(net.error().message);
    surroundings.offer<connections::NetPeers>(std::move(*net));
    surroundings.ask<connections::NetPeers>()->set_wake(&wake);
  }
  // From now on the other ranks hear nothing of this rank, and what they wait for fails.
  void die() {
    hub->kill(rank());
    if (surroundings.ask<connections::NetPeers>()) surroundings.ask<connections::NetPeers>()->sever();
  }
  // Notes what this rank is doing. The watchdog prints it.
  void note(std::string text) {
    std::lock_guard lock(note_mutex_);
    note_ = std::move(text);
  }
  std::string noted() {
    std::lock_guard lock(note_mutex_);
    return note_;
  }

  Ensemble& ensemble_;
  World world;
  posix::WaitWord& wake;
  std::shared_ptr<connections::ThreadHub> hub;
  BlackboardExchange exchange;
  transport::Surroundings surroundings;

 private:
  std::shared_ptr<Blackboard> board_;
  std::mutex note_mutex_;
  std::string note_ = "started";
};

// Steps an object until it is done or failed, and sleeps while there is nothing to do. `armed`: the links and other
// objects with arm() whose messages it waits for.
template <typename Stepped, typename... Armed>
Progress drive(Stepped& stepped, posix::WaitWord& wake, Armed&... armed) {
  for (;;) {
    Progress progress = stepped.step();
    if (progress != Progress::pending) return progress;
    std::uint32_t announced = wake.announce();
    (armed.arm(), ...);
    progress = stepped.step();
    if (progress != Progress::pending) {
      wake.retract();
      return progress;
    }
    wake.sleep(announced, posix::WaitWord::forever);
  }
}

// Runs `program` once per rank, each in its own thread, and waits for all. If they are not done by the deadline, the
// test fails with the note of every rank that hangs. Then all ranks are killed: their links fail. If they still do not
// end, the test program exits.
inline void run_ranks(Ensemble& ensemble, const std::function<void(RankThread&)>& program,
                      std::chrono::seconds deadline = std::chrono::seconds(100)) {
  const int size = ensemble.world.size();
  std::vector<std::unique_ptr<RankThread>> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_unique<RankThread>(ensemble, Rank{rank}));
  for (auto& rank : ranks)
    rank->surroundings.wake_of = [&ranks](Rank other) {
      return &ranks.at(static_cast<std::size_t>(other.value))->wake;
    };

  std::mutex mutex;
  std::condition_variable ended;
  std::vector<bool> is_done(static_cast<std::size_t>(size), false);
  int running = size;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      program(*ranks[static_cast<std::size_t>(rank)]);
      std::lock_guard lock(mutex);
      is_done[static_cast<std::size_t>(rank)] = true;
      --running;
      ended.notify_all();
    });

  std::unique_lock lock(mutex);
  auto all_done = [&] { return running == 0; };
  if (!ended.wait_for(lock, deadline, all_done)) {
    for (int rank = 0; rank < size; ++rank)
      if (!is_done[static_cast<std::size_t>(rank)])
        ADD_FAILURE() << "rank " << rank << " was not done after " << deadline.count()
                      << " s; at: " << ranks[static_cast<std::size_t>(rank)]->noted();
    lock.unlock();
    for (int rank = 0; rank < size; ++rank) ensemble.hub->kill(Rank{rank});
    lock.lock();
    if (!ended.wait_for(lock, std::chrono::seconds(10), all_done)) {
      std::fprintf(stderr, "the hanging ranks did not even end when they were killed; giving up\n");
      std::fflush(nullptr);
      std::_Exit(3);
    }
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
}

// Like run_ranks() above, with one node per entry of `shape`, which has the number of the node's ranks.
inline void run_ranks(const std::vector<int>& shape, const std::function<void(RankThread&)>& program,
                      std::chrono::seconds deadline = std::chrono::seconds(100)) {
  Ensemble ensemble(made_up_world(shape));
  run_ranks(ensemble, program, deadline);
}

}  // namespace hvd::testing
