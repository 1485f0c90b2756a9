#pragma once
// A way to move bytes between the ranks of a group. A transport knows no other transport.
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <typeindex>
#include <utility>

#include "base/bytes.hpp"
#include "base/channel.hpp"
#include "base/collective.hpp"
#include "base/config.hpp"
#include "base/deadline.hpp"
#include "base/group.hpp"
#include "base/result.hpp"
#include "base/task.hpp"
#include "base/world.hpp"
#include "native/posix/wait_word.hpp"

namespace hvd::transport {

// What a transport may use of its rank. Outlives every link.
struct Surroundings {
  const World* world = nullptr;
  const Config* config = nullptr;
  posix::WaitWord* wake = nullptr;  // of this rank's engine; whoever delivers something to the rank posts it
  // The mapped wait word of any rank of my node, mine included; null for a rank that has none.
  std::function<posix::WaitWord*(Rank)> wake_of;
  // Whether this process has called register_asymmetric_barrier() with success: it may then wake others without a
  // fence.
  bool asymmetric_wake = false;

  // What only some transports need (connections::NodePeers, shm::SharedRegions, …) is found by its type. Null if this
  // rank has none; a job on one node, for example, has no connections to other nodes.
  template <typename Service>
  std::shared_ptr<Service> ask() const {
    auto found = services_.find(typeid(Service));
    return found == services_.end() ? nullptr : std::static_pointer_cast<Service>(found->second);
  }
  template <typename Service>
  void offer(std::shared_ptr<Service> service) {
    services_[typeid(Service)] = std::move(service);
  }

 private:
  std::map<std::type_index, std::shared_ptr<void>> services_;
};

// What an operation is expected to take; the selector takes the smallest.
struct Cost {
  double seconds = 0;
  bool fixed_order = true;  // the addition tree of an element does not depend on its place in the batch
  static constexpr Cost impossible() { return {-1.0, false}; }
  bool possible() const { return seconds >= 0; }
};

// The collectives that a transport does itself (shared memory, MPI, NCCL).
//
// The tasks of one link run one after the other: all seats must restart() them in the same order, and a task that was
// restarted while another runs waits for its turn in step().
// What restart() expects of the segments, for every verb a list that is read as one long array:
//  allreduce, barrier  `out` has the lengths of `in`, segment by segment, and may be the same memory.
//  broadcast           the root's `in`, everybody's `out`; the root's `out` may be empty or the same memory.
//  allgather           `in` is this seat's share, `out` all shares by seat. Shares are `counts`; if the plan has none,
//                      they are share_of() the length of `out`.
//  reduce_scatter      `in` is everything, `out` this seat's share: as allgather, of the length of `in`.
//  alltoall            `in` is what goes to each seat, by seat; `out` what comes from each, by seat, in other memory:
//                      see Task::resize().
//  adasum              as allreduce, but every segment is a tensor with coefficients of its own.
class NativeCollectives {
 public:
  virtual ~NativeCollectives() = default;
  virtual Cost cost(const Collective& collective) const = 0;
  // Borrows the link. `collective.count` is a hint: restart() may bring any number of elements.
  virtual std::unique_ptr<Task> plan(const Collective& collective) = 0;
};

// How `total` elements are dealt out to `size` seats if no counts are given: a seat has the elements in [begin, end).
struct Share {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};
constexpr Share share_of(std::int64_t total, Seat seat, int size) {
  std::int64_t each = total / size, more = total % size;  // the first `more` seats get one more
  auto begin = [&](std::int64_t k) { return k * each + (k < more ? k : more); };
  return {begin(seat.value), begin(std::int64_t{seat.value} + 1)};
}

// A send or receive under way. The link that made it knows it until poll() has returned done or failed.
struct Pending {
  std::uint32_t ticket = 0;
};

// The open connections of one group. Used by one thread.
class Link {
 public:
  virtual ~Link() = default;
  virtual const Group& group() const = 0;
  // The bytes are borrowed until poll() says done or failed. Messages between two seats match by channel.
  virtual Pending send(Seat to, ConstBytes bytes, Channel channel) = 0;
  virtual Pending recv(Seat from, Bytes bytes, Channel channel) = 0;
  virtual Progress poll(Pending pending) = 0;
  virtual const Error& failure() const = 0;
  virtual NativeCollectives* native() noexcept = 0;  // null for plain links
  // The engine is about to sleep: from now on everything that lets a pending operation go on must post the wake word.
  // Called after the word was announced and before a last look; what that look sets going counts, too.
  virtual void arm() noexcept {}
  // Asked before every sleep. True while something is under way whose end posts no wake word (MPI cannot post it). The
  // engine then only naps. The call also lets the link move on what it has under way.
  virtual bool needs_polling() noexcept { return false; }
  // True while something is under way that moves only when it is looked at, and has moved a moment ago. Then it is
  // better to go on looking than to nap, since nothing moves during a nap.
  virtual bool progresses_only_when_polled() noexcept { return false; }
  // Everything pending fails. Afterwards neither this process nor a peer touches the caller's buffers.
  virtual void abort(const Error& reason) noexcept = 0;
};

// A link being made. Stepped like a task, never blocks.
class Connecting {
 public:
  virtual ~Connecting() = default;
  virtual Progress step() = 0;
  virtual std::unique_ptr<Link> take() = 0;  // after done
  virtual const Error& failure() const = 0;  // after failed
};

// Small values between the ranks of a group while a link is made. Never blocks.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual Status put(std::string_view key, ConstBytes value) = 0;
  // False while the value has not arrived.
  virtual Result<bool> get(Rank from, std::string_view key, Buffer& value) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  virtual bool reaches(const Group& group, DeviceKind kind) const = 0;
  // Collective over the group. `name` is equal on all its ranks and used once per epoch.
  virtual Result<std::unique_ptr<Connecting>> connect(const Group& group, std::string_view name,
                                                      Exchange& exchange) = 0;
};

}  // namespace hvd::transport
