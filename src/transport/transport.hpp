#pragma once
// A way to move bytes between the ranks of a group. Transports do not use each other.
#include <functional>
#include <memory>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/bytes.hpp"
#include "base/channel.hpp"
#include "base/collective.hpp"
#include "base/deadline.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "base/task.hpp"
#include "base/world.hpp"
#include "native/posix/memory/wait_word.hpp"

namespace hvd::connections {
class MpiPeers;
class NetPeers;
class NodePeers;
class ThreadHub;
}  // namespace hvd::connections
namespace hvd::devices {
class Devices;
}
namespace hvd::transport::shm {
class SharedRegions;
}

namespace hvd::transport {

// The services of a rank that only some transports need. A service is null if the rank does not have it: a job on one
// node, for example, has no connections to other nodes. A transport that needs a new service adds it here. The compiler
// then names the place that offers all of them (Runtime::start).
using Services = std::tuple<std::shared_ptr<connections::ThreadHub>, std::shared_ptr<connections::NodePeers>,
                            std::shared_ptr<connections::NetPeers>, std::shared_ptr<connections::MpiPeers>,
                            std::shared_ptr<devices::Devices>, std::shared_ptr<shm::SharedRegions>>;

// The parts of a rank that a transport may use. They outlive every link.
struct Surroundings {
  const World* world = nullptr;
  const Config* config = nullptr;
  posix::WaitWord* wake = nullptr;  // the wait word of this rank's engine; it is posted when something is delivered to
                                    // the rank
  // Returns the mapped wait word of any rank of this node, including this one. Null for a rank without a wait word.
  std::function<posix::WaitWord*(Rank)> wake_of;
  // True if this process has called register_asymmetric_barrier() successfully. It may then wake others without a
  // fence.
  bool asymmetric_wake = false;

  // Returns a service, which is found by its type; null if this rank does not have it.
  template <typename Service>
  const std::shared_ptr<Service>& ask() const {
    return std::get<std::shared_ptr<Service>>(services);
  }
  template <typename Service>
  void offer(std::shared_ptr<Service> service) {
    std::get<std::shared_ptr<Service>>(services) = std::move(service);
  }
  Services services;
};

// The expected duration of an operation. The selector takes the algorithm with the smallest.
struct Cost {
  double seconds = 0;
  bool fixed_order = true;  // an element's order of additions does not depend on its place in the batch
  static constexpr Cost impossible() { return {-1.0, false}; }
  bool possible() const { return seconds >= 0; }
};

// The collectives that a transport does itself (shared memory, MPI, NCCL).
//
// The tasks of one link run one after the other. All seats must restart() them in the same order. A task that was
// restarted while another task runs waits for its turn in step().
//
// The segments that restart() expects. Each list is read as one long array:
//  allreduce, barrier  `out` has the lengths of `in`, segment by segment, and may be the same memory.
//  broadcast           the root's `in` is copied to every `out`. The root's `out` may be empty or the same memory.
//  allgather           `in` is this seat's share, `out` has all shares by seat. Task::resize() tells their sizes.
//  reduce_scatter      `in` is the whole array, `out` this seat's share, and may be the same memory as that part of
//                      `in`. Task::resize() tells the sizes of all shares.
//  alltoall            `in` has the elements for each seat, by seat; `out` has those from each seat, by seat. The
//                      memory must be different: see Task::resize().
//  adasum              like allreduce, but every segment is a tensor with coefficients of its own.
class NativeCollectives {
 public:
  virtual ~NativeCollectives() = default;
  virtual Cost cost(const Collective& collective) const = 0;
  // Makes a task that uses this link, which must outlive it. `collective.count` is a hint: restart() may get any number
  // of elements.
  virtual std::unique_ptr<Task> plan(const Collective& collective) = 0;
};

// The part of an array of `total` elements that a seat gets if they are divided evenly: the elements in [begin, end).
struct Share {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};
constexpr Share share_of(std::int64_t total, Seat seat, int size) {
  std::int64_t each = total / size, more = total % size;  // the first `more` seats get one more
  auto begin = [&](std::int64_t k) { return k * each + (k < more ? k : more); };
  return {begin(seat.value), begin(std::int64_t{seat.value} + 1)};
}

// A send or receive that is under way. Its link knows it until poll() has returned done or failed.
struct Pending {
  std::uint32_t ticket = 0;
};

// The open connections of one group. Only one thread uses them.
class Link {
 public:
  virtual ~Link() = default;
  virtual const Group& group() const = 0;
  // The bytes are borrowed until poll() returns done or failed. Between two seats, a receive gets the message with the
  // same channel.
  virtual Pending send(Seat to, ConstBytes bytes, Channel channel) = 0;
  virtual Pending recv(Seat from, Bytes bytes, Channel channel) = 0;
  virtual Progress poll(Pending pending) = 0;
  virtual const Error& failure() const = 0;
  virtual NativeCollectives* native() noexcept = 0;  // null if the link has only messages
  // Called before the engine sleeps. From now on, everything that lets a pending operation go on must post the wake
  // word. arm() is called after the wake word was announced and before a last look. Operations that this look starts
  // must post the word too.
  virtual void arm() noexcept {}
  // Called before every sleep. Returns true while something is under way whose end does not post the wake word (MPI
  // cannot post it). The engine then only takes naps. The call also moves the link's operations forward.
  virtual bool needs_polling() noexcept { return false; }
  // Returns true while messages move only when the engine looks, and something has moved a moment ago. The engine then
  // looks again instead of taking a nap, because nothing moves during a nap.
  virtual bool progresses_only_when_polled() noexcept { return false; }
  // Makes all pending operations fail. Afterwards neither this process nor a peer touches the caller's buffers.
  //
  // For a link of a device: work that was issued and cannot be completed any more ends. Its results are never left
  // half-reduced, because the caller's stream goes on and its program may have been told long ago that all is well. So
  // each collective queues, before its last event, work that looks at a word that abort() sets first, and then writes
  // NaN to what the collective writes. It never writes to inputs or to a root's data. Integers have no NaN; their
  // handles fail (Engine::completeness_of). This function is called on a thread of its own, and may hang.
  virtual void abort(const Error& reason) noexcept = 0;
};

// A link that is being made. It is stepped like a task and never blocks.
class Connecting {
 public:
  virtual ~Connecting() = default;
  virtual Progress step() = 0;
  // Call it after step() returned done. Null if the ranks have found out, and all know, that this transport cannot
  // connect them after all. Only transports of devices may return that.
  virtual std::unique_ptr<Link> take() = 0;
  virtual const Error& failure() const = 0;  // call it after step() returned failed
};

// Exchanges small values between the ranks of a group while a link is made. Never blocks.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual Status put(std::string_view key, ConstBytes value) = 0;
  // Returns false if the value has not arrived yet.
  virtual Result<bool> get(Rank from, std::string_view key, Buffer& value) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  // All ranks of the group must answer alike, from what all of them know: each chooses its transport by itself.
  virtual bool reaches(const Group& group, DeviceKind kind) const = 0;
  // Collective over the group. `name` is equal on all its ranks and is used only once per epoch.
  virtual Result<std::unique_ptr<Connecting>> connect(const Group& group, std::string_view name,
                                                      Exchange& exchange) = 0;
};

}  // namespace hvd::transport
