#pragma once
// For tests: ranks as forked processes with real unix sockets between them. The parent process is not a rank.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "connections/node_peers.hpp"
#include "made_up_world.hpp"

namespace hvd::testing {

// The state of a forked rank at its start. The parent makes all listeners before the forks, so that no rank has to tell
// its address.
struct RankProcess {
  World world;
  Group node;
  std::vector<connections::PeerListener>* listeners;

  Result<std::shared_ptr<connections::NodePeers>> meet(std::chrono::seconds patience = std::chrono::seconds(20)) {
    auto mine = std::move((*listeners)[static_cast<std::size_t>(world.rank.value)]);
    listeners->clear();  // closes this process's copies of the other ranks' listeners
    return connections::NodePeers::meet(world, node, std::move(mine), Deadline::after(patience));
  }
};

// Runs `program` in one process per rank. Its return value becomes the exit code of the process. Returns the wait
// statuses, by rank. If a process hangs, an alarm ends it.
inline std::vector<int> run_processes(int size, const std::function<int(RankProcess&)>& program,
                                      unsigned limit_s = 50) {
  std::vector<connections::PeerListener> listeners;
  World world = made_up_world({size});
  for (int rank = 0; rank < size; ++rank) {
    auto listener = connections::PeerListener::open();
    EXPECT_TRUE(listener);
    world.members[static_cast<std::size_t>(rank)].address = listener->address();
    listeners.push_back(std::move(*listener));
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    pid_t child = ::fork();
    if (child == 0) {
      ::alarm(limit_s);
      world.rank = Rank{rank};
      RankProcess process{world, everybody(world), &listeners};
      int outcome = program(process);
      std::fflush(nullptr);
      ::_exit(outcome);
    }
    children.push_back(child);
    world.members[static_cast<std::size_t>(rank)].pid = child;  // later ranks know this one's process id
  }
  listeners.clear();
  std::vector<int> statuses;
  for (pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    statuses.push_back(status);
  }
  return statuses;
}

}  // namespace hvd::testing
