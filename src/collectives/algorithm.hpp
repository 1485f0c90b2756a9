#pragma once
// The interface of an algorithm: a way to carry out collectives over a team.
#include <functional>
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

// A group, its links, and the smaller teams of which it consists. Every task that is planned over a team uses it, so
// the team must outlive the task.
struct Team {
  Group group;
  transport::Link* link = nullptr;  // null for a team of one rank, or if only node and rail are connected
  // The name of the transport over which the team goes, for the timeline: of its link, or else of that of its rail.
  std::string_view transport = {};
  // Of a team for host memory whose tensors are on devices: there may be no link yet, but it is made when an algorithm
  // needs it (Algorithm::needs_links_of_host).
  bool can_be_linked = false;
  bool has_link() const { return link != nullptr || can_be_linked; }
  // In a team on several nodes: the ranks on this node, and the ranks with this local rank on all nodes. Otherwise
  // null.
  Team* node = nullptr;
  Team* rail = nullptr;  // null on a rank without a rail (uneven nodes)
  int nodes = 1;         // number of nodes with ranks of the team
  int rails = 1;         // number of rails: the smallest number of ranks on a node of this team
  // By seat: the number of the seat's node, which is also the node's seat on every rail. Null data if it is not known;
  // hierarchical then does only allreduce and barrier, which do not need these numbers.
  std::span<const std::int32_t> node_of;
  const Selector* selector = nullptr;  // chooses the algorithms of the stages
  // For tensors in device memory: their device, and a team of the same ranks over links that carry host memory. The
  // second team is used where no link carries data from device to device. Otherwise null.
  devices::Device* device = nullptr;
  Team* host = nullptr;
  // Of hierarchical on devices: memory and streams that all plans of the team share. Made with the first plan.
  std::shared_ptr<void> slots;
  // Seconds since some moment. By it hierarchical on devices measures what its stages cost (on_device/measurement.hpp).
  // Null: it goes by assumed costs.
  std::function<double()> clock;

  int size() const { return group.size(); }
};

// Rules for tasks over one link. Every rank must keep them:
//  - The tasks of a link are planned in the same order on all its ranks, and restarted in the same order. Several may
//    be under way at the same time; their sequence numbers then differ.
//  - A task that was restarted is stepped until it is done or failed. A task that failed or is given up is destroyed
//    only after link->abort(): until then peers may still read its buffers.
// The segments that restart() expects are the same for every algorithm. transport::NativeCollectives describes them.
class Algorithm {
 public:
  virtual ~Algorithm() = default;
  virtual const char* name() const = 0;
  // True if cost() of this verb is possible for some team.
  virtual bool does(Verb verb) const = 0;
  // Returns Cost::impossible() if the algorithm cannot do the collective. The result is equal on all ranks of the team.
  virtual Cost cost(const Collective& collective, const Team& team) const = 0;
  // True if collectives of tensors in device memory also use links of host memory.
  virtual bool needs_links_of_host() const = 0;
  // If two algorithms return the same name, they give the same bits for the same team (see Selector).
  virtual std::string_view addition_order(const Collective& collective, const Team& team) const = 0;
  // Collective: every rank of the team makes the same plans in the same order.
  virtual std::unique_ptr<Task> plan(const Collective& collective, Team& team) const = 0;
};

}  // namespace hvd::collectives
