#pragma once
// Our data plane without the agreement and the engine above it: the links that a runtime would make (shared memory in
// the node, TCP between nodes), and planned tasks that the caller steps.
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/collective.hpp"
#include "base/task.hpp"
#include "connections/net_peers.hpp"
#include "connections/node_peers.hpp"
#include "link/exchange_bootstrap.hpp"
#include "native/posix/memory/shared_memory.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "runtime/lanes/teams.hpp"
#include "runtime/operations/process_sets.hpp"
#include "topology/layout.hpp"
#include "transport/transport.hpp"

namespace hvd::benchmark {

class OurLink {
 public:
  // Collective. Its parts and their order are those of a runtime's start.
  explicit OurLink(Ranks ranks);
  ~OurLink();
  OurLink(const OurLink&) = delete;
  OurLink& operator=(const OurLink&) = delete;

  // Returns a function that restarts a planned task over these segments and steps it until it is done. The function is
  // valid as long as the link. Collective: all ranks plan and call in the same order.
  std::function<void()> call(const Collective& collective, std::vector<Segment> in, std::vector<Segment> out);
  // Returns such a function for an alltoall that sends these numbers of elements to the seats and gets them from the
  // seats, or an allgather of these numbers.
  std::function<void()> exchange(const Collective& collective, std::vector<Segment> in, std::vector<Segment> out,
                                 std::vector<std::int64_t> counts);

 private:
  struct Planned {
    std::unique_ptr<Task> task;
    std::vector<Segment> in, out;
    std::vector<std::int64_t> counts{};  // numbers of elements, by seat
  };
  void meet();
  void share_wake_words();
  void connect();
  void run(Planned& planned);

  const Ranks ranks_;
  Config config_;
  World world_;
  topology::Layout layout_;
  ExchangeBootstrap bootstrap_;
  Deadline deadline_;
  std::shared_ptr<connections::NodePeers> peers_;
  std::shared_ptr<connections::NetPeers> net_;  // null if the job has one node
  posix::SharedMemory wake_memory_;
  transport::Surroundings surroundings_;
  std::unique_ptr<runtime::ProcessSets> sets_;  // the only process set is the world
  std::unique_ptr<runtime::TeamMaker> maker_;
  std::unique_ptr<runtime::Teams> teams_;
  std::vector<std::unique_ptr<Planned>> planned_;
  std::uint64_t sequence_ = 0;
};

inline std::vector<Segment> one_segment(void* data, std::size_t count, DataType dtype) {
  return {{{data, static_cast<std::int64_t>(count), dtype}}};
}

}  // namespace hvd::benchmark
