#pragma once
// Ranks that are forked processes, with real unix sockets between them, for tests. The parent is not a rank.
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

// What a forked rank starts with. All listeners are made before the forks, so nobody has to exchange addresses.
struct RankProcess {
  World world;
  Group node;
  std::vector<connections::PeerListener>* listeners;

  Result<std::shared_ptr<connections::NodePeers>> meet(std::chrono::seconds patience = std::chrono::seconds(20)) {
    auto mine = std::move((*listeners)[static_cast<std::size_t>(world.rank.value)]);
    listeners->clear();  // the other ranks' ends must not live on here
    return connections::NodePeers::meet(world, node, std::move(mine), Deadline::after(patience));
  }
};

// Runs `program` in one process per rank; it returns what the process exits with. The wait statuses, by rank. A process
// that hangs is ended by its alarm clock.
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
    world.members[static_cast<std::size_t>(rank)].pid = child;  // known to the ranks that come later
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
