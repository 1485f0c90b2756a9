#pragma once
// N ranks that one thread steps in an order drawn from a seed: collectives over any transport and any shape of nodes,
// fast and repeatable. For ranks as real threads see ranks_as_threads.hpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/selection/selector.hpp"
#include "ranks_as_threads.hpp"
#include "topology/layout.hpp"
#include "transport/registry.hpp"

namespace hvd::testing {

// The teams of one rank. Each is connected by the first of the named transports that reaches its ranks.
class ConnectedTeams {
 public:
  ConnectedTeams(RankThread& rank, std::span<const std::string> transports, const collectives::Selector& selector)
      : rank_(rank), layout_(topology::layout_of(rank.world)) {
    if (std::find(transports.begin(), transports.end(), "tcp") != transports.end()) rank.use_net();
    for (const std::string& name : transports)
      for (const transport::Maker& maker : transport::registry())
        if (name == maker.name) transports_.push_back(maker.make(rank.surroundings));
    for (collectives::Team* team : {&world, &node, &rail}) team->selector = &selector;
    world.group = layout_.world;
    wanted_.push_back({&world, "world"});
    if (layout_.nodes == 1) return;
    world.nodes = layout_.nodes;
    world.rails = layout_.rails;
    world.node_of = layout_.node_of;
    node.group = layout_.node;
    world.node = &node;
    wanted_.push_back({&node, "node-" + std::to_string(layout_.my_node)});
    if (!layout_.rail.has_me()) return;
    rail.group = layout_.rail;
    world.rail = &rail;
    wanted_.push_back({&rail, "rail-" + std::to_string(layout_.node.me.value)});
  }

  bool is_reached() const {
    return std::all_of(wanted_.begin(), wanted_.end(), [this](const Wanted& wanted) {
      return wanted.team->size() == 1 || transport_for(*wanted.team) != nullptr;
    });
  }
  // Has the form of Task::step(), so that drive() can be used.
  Progress step() {
    for (; next_ < wanted_.size(); ++next_) {
      Wanted& wanted = wanted_[next_];
      if (wanted.team->size() == 1) continue;
      if (!wanted.connecting) {
        auto connecting = transport_for(*wanted.team)->connect(wanted.team->group, wanted.name, rank_.exchange);
        if (!connecting) return refuse(connecting.error());
        wanted.connecting = std::move(*connecting);
      }
      Progress progress = wanted.connecting->step();
      if (progress == Progress::failed) return refuse(wanted.connecting->failure());
      if (progress != Progress::done) return progress;
      wanted.link = wanted.connecting->take();
      wanted.team->link = wanted.link.get();
    }
    return Progress::done;
  }
  void abort(const Error& reason) {
    for (Wanted& wanted : wanted_)
      if (wanted.link) wanted.link->abort(reason);
  }
  void arm() {
    for (Wanted& wanted : wanted_)
      if (wanted.link) wanted.link->arm();
  }

  collectives::Team world, node, rail;

 private:
  struct Wanted {
    collectives::Team* team;
    std::string name;
    std::unique_ptr<transport::Connecting> connecting = nullptr;
    std::unique_ptr<transport::Link> link = nullptr;
  };
  transport::Transport* transport_for(const collectives::Team& team) const {
    for (const auto& transport : transports_)
      if (transport->reaches(team.group, DeviceKind::host)) return transport.get();
    return nullptr;
  }
  Progress refuse(const Error& error) {
    ADD_FAILURE() << "rank " << rank_.rank().value << " could not connect: " << error.message;
    return Progress::failed;
  }

  RankThread& rank_;
  topology::Layout layout_;
  std::vector<std::unique_ptr<transport::Transport>> transports_;
  std::vector<Wanted> wanted_;
  std::size_t next_ = 0;
};

// The tensors that one rank gives to a collective and gets from it.
struct Part {
  std::vector<Segment> in, out;
  std::vector<std::int64_t> sent{}, received{};  // numbers of elements: see Task::resize
};
inline void restart(Task& task, const Part& part, Sequence sequence) {
  task.resize(part.sent, part.received);
  task.restart(part.in, part.out, sequence);
}

class RanksInTurn {
 public:
  // Calls `prepare` for every rank before that rank connects.
  RanksInTurn(World world, std::vector<std::string> transports, std::uint64_t seed = 1, Config config = {},
              const std::function<void(RankThread&)>& prepare = {})
      : ensemble(std::move(world), std::move(config)), random_(seed) {
    auto selector_or = collectives::Selector::make(ensemble.config);
    if (!selector_or) {
      ADD_FAILURE() << selector_or.error().message;
      return;
    }
    selector = std::move(*selector_or);
    for (int rank = 0; rank < size(); ++rank) {
      threads_.push_back(std::make_unique<RankThread>(ensemble, Rank{rank}));
      if (prepare) prepare(*threads_.back());
      teams_.push_back(std::make_unique<ConnectedTeams>(*threads_.back(), transports, *selector));
    }
    is_reached_ = std::all_of(teams_.begin(), teams_.end(), [](const auto& teams) { return teams->is_reached(); });
    if (is_reached_)
      is_connected_ =
          step_all("connecting", [this](std::size_t rank) { return teams_[rank]->step(); }) == Progress::done;
  }
  ~RanksInTurn() { abort(); }

  // False if no transport of the list reaches all ranks. Then nothing can be tested.
  bool is_reached() const { return is_reached_; }
  bool is_connected() const { return is_connected_; }
  int size() const { return ensemble.world.size(); }
  collectives::Team& team(int rank) { return teams_[static_cast<std::size_t>(rank)]->world; }

  // One plan per rank, which can be run any number of times.
  using Tasks = std::vector<std::unique_ptr<Task>>;
  Tasks plan(const collectives::Algorithm& algorithm, const Collective& collective) {
    Tasks tasks;
    for (int rank = 0; rank < size(); ++rank) tasks.push_back(algorithm.plan(collective, team(rank)));
    return tasks;
  }
  void restart(Tasks& tasks, const std::vector<Part>& parts) {
    ++sequence_;
    for (std::size_t rank = 0; rank < tasks.size(); ++rank)
      testing::restart(*tasks[rank], parts[rank], Sequence{sequence_});
  }
  // Steps all ranks until all are done. If one fails, aborts its links as an engine would, and returns `failed`.
  Progress step_until_done(Tasks& tasks) {
    return step_all("a collective", [&](std::size_t rank) {
      Progress progress = tasks[rank]->step();
      if (progress == Progress::failed) teams_[rank]->abort(tasks[rank]->failure());
      return progress;
    });
  }
  Progress run(Tasks& tasks, const std::vector<Part>& parts) {
    restart(tasks, parts);
    return step_until_done(tasks);
  }
  // After this call, tasks that are not done may be destroyed.
  void abort() {
    for (auto& teams : teams_) teams->abort(Error(ErrorCode::shut_down, "the test is over"));
  }
  void abort(int rank, const Error& reason) { teams_[static_cast<std::size_t>(rank)]->abort(reason); }
  void kill(int rank) { threads_[static_cast<std::size_t>(rank)]->die(); }
  std::mt19937_64& random() { return random_; }

  Ensemble ensemble;
  std::unique_ptr<collectives::Selector> selector;

 private:
  template <typename Step>
  Progress step_all(const char* what, Step step) {
    std::vector<std::size_t> running(static_cast<std::size_t>(size()));
    std::iota(running.begin(), running.end(), std::size_t{0});
    Progress outcome = Progress::done;
    Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (!running.empty()) {
      std::shuffle(running.begin(), running.end(), random_);
      std::erase_if(running, [&](std::size_t rank) {
        Progress progress = step(rank);
        if (progress == Progress::failed) outcome = progress;
        return progress != Progress::pending;
      });
      if (!deadline.passed()) continue;
      ADD_FAILURE() << what << " does not end; first rank that waits: " << running.front();
      return Progress::failed;
    }
    return outcome;
  }

  std::vector<std::unique_ptr<RankThread>> threads_;
  std::vector<std::unique_ptr<ConnectedTeams>> teams_;
  std::mt19937_64 random_;
  std::uint64_t sequence_ = 0;
  bool is_reached_ = false, is_connected_ = false;
};

}  // namespace hvd::testing
