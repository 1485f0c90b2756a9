#include "transport/shm/link.hpp"

#include "base/panic.hpp"
#include "transport/shm/mailbox.hpp"
#include "transport/shm/tasks.hpp"

namespace hvd::transport::shm {
namespace {

// Rough costs for the selector: one hand-over between caches, and one byte through a slab in the cache. For every verb
// the result is less than the assumed cost of sending the same bytes as messages, because messages go through the same
// memory.
constexpr double hand_over_s = 0.2e-6;
constexpr double byte_s = 0.05e-9;

class ShmLink final : public Link, public NativeCollectives {
 public:
  explicit ShmLink(std::unique_ptr<LinkState> state) : state_(std::move(state)), mailbox_(*state_) {}

  const Group& group() const override { return state_->group; }
  Pending send(Seat to, ConstBytes bytes, Channel channel) override { return mailbox_.send(to, bytes, channel); }
  Pending recv(Seat from, Bytes bytes, Channel channel) override { return mailbox_.recv(from, bytes, channel); }
  Progress poll(Pending pending) override { return mailbox_.poll(pending); }
  const Error& failure() const override { return mailbox_.failure(); }
  NativeCollectives* native() noexcept override { return this; }

  // Peers write only into the shared area, never into this rank's tensors. This rank's tasks and messages check for the
  // abort before they touch any memory. So nothing touches the caller's memory after this function has returned.
  void abort(const Error& reason) noexcept override {
    if (!state_->aborted) state_->aborted = reason;
    mailbox_.abort(*state_->aborted);
  }

  Cost cost(const Collective& collective) const override {
    if (collective.device != DeviceKind::host) return Cost::impossible();
    double bytes = static_cast<double>(collective.count) * static_cast<double>(size_of(collective.dtype));
    double seats = state_->size;
    double seconds = hand_over_s;
    switch (collective.verb) {
      case Verb::barrier: break;
      case Verb::broadcast: seconds += bytes * byte_s; break;
      case Verb::allreduce: seconds += bytes * byte_s * (3 * seats - 2) / seats / 2; break;
      case Verb::allgather:
      case Verb::alltoall:
      case Verb::reduce_scatter: seconds += bytes * byte_s * (seats - 1) / seats; break;
      case Verb::join:
      case Verb::adasum:
      case Verb::add_set:
      case Verb::remove_set: return Cost::impossible();
    }
    return {seconds, true};
  }

  std::unique_ptr<Task> plan(const Collective& collective) override {
    switch (collective.verb) {
      case Verb::allreduce: return plan_allreduce(*state_, collective);
      case Verb::broadcast: return plan_broadcast(*state_, collective);
      case Verb::allgather: return plan_allgather(*state_, collective);
      case Verb::reduce_scatter: return plan_reduce_scatter(*state_, collective);
      case Verb::alltoall: return plan_alltoall(*state_, collective);
      case Verb::barrier: return plan_barrier(*state_, collective);
      case Verb::join:
      case Verb::adasum:
      case Verb::add_set:
      case Verb::remove_set: break;
    }
    panic("shared memory was asked for a verb that it does not do; ask for its cost first");
  }

 private:
  std::unique_ptr<LinkState> state_;
  Mailbox mailbox_;
};

}  // namespace

std::unique_ptr<Link> make_link(std::unique_ptr<LinkState> state) {
  return std::make_unique<ShmLink>(std::move(state));
}

}  // namespace hvd::transport::shm
