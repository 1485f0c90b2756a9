#pragma once
// N ranks with a late device each, which one thread steps: the teams for tensors on devices, over the links that a test
// asks for.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "devices/of_rank/devices.hpp"
#include "fixtures/late_device/direct_transport.hpp"
#include "fixtures/late_device/late_device.hpp"
#include "ranks_in_turn.hpp"

namespace hvd::testing {

// The links from device to device.
enum class DeviceLinks : std::uint8_t { none, between_all, in_nodes, in_nodes_and_on_rails };

class DevicesInTurn {
 public:
  using Tasks = RanksInTurn::Tasks;

  // The other links are those of the transport.
  DevicesInTurn(const std::vector<int>& shape, const std::string& transport, DeviceLinks links, Config config = {},
                int longest_delay = 3)
      : ranks(made_up_world(shape), {transport, "inproc"}, 11, std::move(config), [&](RankThread& rank) {
          threads_.push_back(&rank);
          devices_.push_back(std::make_shared<LateDevice>(devices_.size() + 1, longest_delay));
          std::shared_ptr<devices::Device> mine = devices_.back();
          rank.surroundings.offer(std::make_shared<devices::Devices>(std::span(&mine, 1)));
        }) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      collectives::Team& host = ranks.team(rank);
      teams_.push_back(std::make_unique<Teams>());
      Teams& teams = *teams_.back();
      streams_.push_back(device(rank).stream().value());
      teams.all.host = &host;
      connect(rank, teams.all, host, "devices", links == DeviceLinks::between_all);
      if (host.node == nullptr) continue;
      teams.all.nodes = host.nodes;
      teams.all.rails = host.rails;
      teams.all.node_of = host.node_of;
      if (links == DeviceLinks::none || links == DeviceLinks::between_all) continue;
      teams.all.node = &teams.node;
      teams.all.rail = host.rail;
      const std::string node = std::to_string(host.node_of[static_cast<std::size_t>(rank)]);
      connect(rank, teams.node, *host.node, "devices of node " + node, true);
      if (links == DeviceLinks::in_nodes || host.rail == nullptr) continue;
      teams.all.rail = &teams.rail;
      connect(rank, teams.rail, *host.rail, "devices of rail " + std::to_string(host.node->group.me.value), true);
    }
  }

  int size() const { return ranks.size(); }
  LateDevice& device(int rank) { return *devices_[static_cast<std::size_t>(rank)]; }
  Stream stream(int rank) const { return {streams_[static_cast<std::size_t>(rank)].get()}; }
  collectives::Team& team(int rank) { return teams_[static_cast<std::size_t>(rank)]->all; }

  Tasks plan(const collectives::Algorithm& algorithm, const Collective& collective) {
    Tasks tasks;
    for (int rank = 0; rank < size(); ++rank) {
      Collective of_rank = collective;
      of_rank.device = DeviceKind::cuda;
      of_rank.stream = stream(rank);
      tasks.push_back(algorithm.plan(of_rank, team(rank)));
    }
    return tasks;
  }
  // The parts are in memory of the devices. Returns when all tasks are done or issued, or one has failed and the others
  // with it.
  Progress run(Tasks& tasks, const std::vector<Part>& parts) {
    restart(tasks, parts);
    return step_until_issued(tasks);
  }
  void restart(Tasks& tasks, const std::vector<Part>& parts) {
    sequence_ += 1 << 20;
    for (std::size_t rank = 0; rank < tasks.size(); ++rank)
      testing::restart(*tasks[rank], parts[rank], Sequence{sequence_});
  }
  // Steps the tasks until all are issued. Between the steps the devices' threads may use the processor. If one fails,
  // all ranks give up, as engines would that tell each other.
  Progress step_until_issued(Tasks& tasks) {
    Progress outcome = Progress::done;
    std::vector<bool> is_over(tasks.size());
    while (std::ranges::find(is_over, false) != is_over.end()) {
      for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
        if (is_over[rank]) continue;
        Progress progress = tasks[rank]->step();
        is_over[rank] = progress != Progress::pending;
        if (progress != Progress::failed) continue;
        outcome = progress;
        for (int other = 0; other < size(); ++other) abort(other, tasks[rank]->failure());
      }
      std::this_thread::yield();
    }
    return outcome;
  }
  void abort(int rank, const Error& reason) {
    ranks.abort(rank, reason);
    for (const auto& link : teams_[static_cast<std::size_t>(rank)]->links) link->abort(reason);
  }
  void abort() {
    for (int rank = 0; rank < size(); ++rank) abort(rank, Error(ErrorCode::shut_down, "the test is over"));
  }

 private:
  struct Teams {
    std::vector<std::unique_ptr<transport::Transport>> transports;
    std::vector<std::unique_ptr<transport::Link>> links;
    collectives::Team all, node, rail;
  };
  std::vector<RankThread*> threads_;
  std::vector<std::shared_ptr<LateDevice>> devices_;

 public:
  RanksInTurn ranks;

 private:
  void connect(int rank, collectives::Team& team, const collectives::Team& host, const std::string& name,
               bool has_link) {
    team.group = host.group;
    team.selector = ranks.selector.get();
    team.device = &device(rank);
    if (!has_link || team.size() == 1) return;
    Teams& teams = *teams_.back();
    RankThread& thread = *threads_[static_cast<std::size_t>(rank)];
    teams.transports.push_back(make_direct(thread.surroundings));
    teams.links.push_back((*teams.transports.back()->connect(team.group, name, thread.exchange))->take());
    team.link = teams.links.back().get();
  }

  std::vector<std::shared_ptr<void>> streams_;
  std::vector<std::unique_ptr<Teams>> teams_;
  std::uint64_t sequence_ = 0;
};

}  // namespace hvd::testing
