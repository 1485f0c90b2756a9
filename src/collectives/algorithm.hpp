#pragma once
// One way to do collectives over a team.
#include <memory>
#include <span>
#include <string_view>

#include "base/collective.hpp"
#include "base/task.hpp"
#include "devices/device.hpp"
#include "transport/segments/segment_array.hpp"
#include "transport/transport.hpp"

namespace hvd::collectives {

using transport::Cost;
using transport::SegmentArray;

class Selector;

// A group, its links, and the smaller teams that it is made of. Borrowed by every task planned over it.
struct Team {
  Group group;
  transport::Link* link = nullptr;  // null for a team of one rank, or if only node and rail are connected
  // For a team of several nodes: my node, and the seats with my local rank on all nodes. Null otherwise.
  Team* node = nullptr;
  Team* rail = nullptr;  // null on a rank that has no part in the rails (uneven nodes)
  int nodes = 1;         // on which the team has ranks
  int rails = 1;         // how many there are: the smallest number of ranks on a node of this team
  // By seat: the number of its node, which is also the node's seat on every rail. Null data if it is not known;
  // hierarchical then does only allreduce and barrier, which need no numbers.
  std::span<const std::int32_t> node_of;
  const Selector* selector = nullptr;  // chooses the algorithms of the stages
  // For tensors in other memory than the host's: their device, and the same ranks over links that carry host memory,
  // for what no link carries from device to device. Null otherwise.
  devices::Device* device = nullptr;
  Team* host = nullptr;

  int size() const { return group.size(); }
};

// Rules for tasks over one link, which every rank keeps:
//  - The tasks of a link are planned in the same order on all its ranks, and restarted in the same order. Several may
//    be under way at once; their sequence numbers then differ.
//  - A task that was restarted is stepped until it is done or failed. One that failed, or is given up, is destroyed
//    only after link->abort(): until then peers may still read its buffers.
// What restart() expects of the segments is the same for every algorithm and said at transport::NativeCollectives.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual const char* name() const = 0;
  // Whether cost() of this verb is possible for any team.
  virtual bool does(Verb verb) const = 0;
  // Cost::impossible() if the algorithm cannot do it. Equal on all ranks of the team.
  virtual Cost cost(const Collective& collective, const Team& team) const = 0;
  // Two algorithms of equal answers give the same bits for the same team (see Selector).
  virtual std::string_view addition_order(const Collective& collective, const Team& team) const = 0;
  // Collective: every rank of the team plans the same things in the same order.
  virtual std::unique_ptr<Task> plan(const Collective& collective, Team& team) const = 0;
};

}  // namespace hvd::collectives
