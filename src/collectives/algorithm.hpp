#pragma once
// One way to do collectives over a team.
#include <memory>

#include "base/collective.hpp"
#include "base/task.hpp"
#include "transport/transport.hpp"

namespace hvd::collectives {

using transport::Cost;

class Selector;

// A group, its links, and the smaller teams that it is made of. Borrowed by every task planned over it.
struct Team {
  Group group;
  transport::Link* link = nullptr;
  // For a team of several nodes: my node, and the seats with my local rank on all nodes. Null otherwise.
  Team* node = nullptr;
  Team* rail = nullptr;  // null on a rank that has no part in the rails (uneven nodes)
  int rails = 1;         // how many there are: the smallest number of ranks on a node of this team
  const Selector* selector = nullptr;  // chooses the algorithms of the stages

  int size() const { return group.size(); }
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual const char* name() const = 0;
  // Cost::impossible() where it does not apply.
  virtual Cost cost(const Collective& collective, const Team& team) const = 0;
  // Collective: every rank of the team plans the same things in the same order.
  virtual std::unique_ptr<Task> plan(const Collective& collective, Team& team) const = 0;
};

}  // namespace hvd::collectives
