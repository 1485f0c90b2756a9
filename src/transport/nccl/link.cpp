#include "transport/nccl/link.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/panic.hpp"

namespace hvd::transport::over_nccl {

namespace {

// NCCL loads its kernels at its first start, which takes up to a minute on some machines.
constexpr double least_start_timeout_s = 120;

}  // namespace

NcclLink::NcclLink(const Surroundings& surroundings, const Group& group, std::string name, Equipment equipment,
                   const Agreement& agreement)
    : group_(group),
      world_(*surroundings.world),
      wake_(*surroundings.wake),
      start_timeout_s_(std::max(surroundings.config->start_timeout_s, least_start_timeout_s)),
      equipment_(std::move(equipment)),
      buffer_bytes_(static_cast<std::size_t>(agreement.buffer_bytes)),
      without_nvls_(agreement.without_nvls),
      communicator_(*equipment_.library, std::move(name)) {
  for (const std::string& id : agreement.ids)
    std::memcpy(ids_.emplace_back().bytes, id.data(), std::min(sizeof ids_.back().bytes, id.size()));
}

// All members do this at the same place of the log, or have aborted the link before.
NcclLink::~NcclLink() {
  static_cast<void>(device().wait({equipment_.stream.get()}, Event{last_end_.load(std::memory_order_acquire)}));
  if (communicator_.is_stopped()) return;
  issuer().forget(this);
  const cuda::Context::Use use(issuer().context());
  communicator_.end(is_quiet());
}

Pending NcclLink::send(Seat, ConstBytes, Channel) {
  panic("there are no messages between devices: ask native()");
}
Pending NcclLink::recv(Seat, Bytes, Channel) {
  panic("there are no messages between devices: ask native()");
}
Progress NcclLink::poll(Pending) {
  panic("there are no messages between devices: ask native()");
}
const Error& NcclLink::failure() const {
  panic("a link of devices has no failure of its own: ask its tasks");
}

// True if the device has done all that was issued over this link.
bool NcclLink::is_quiet() const {
  auto has_come = device().query(Event{last_end_.load(std::memory_order_acquire)}, nullptr);
  return has_come && *has_come;
}

void NcclLink::abort(const Error& reason) noexcept {
  if (is_over_) return;
  bool is_in_order = reason.code == ErrorCode::shut_down && is_quiet();
  if (!is_in_order) std::atomic_ref(*abort_word()).store(1, std::memory_order_release);
  communicator_.stop();
  is_in_order = issuer().forget(this) && is_in_order;
  const cuda::Context::Use use(issuer().context());
  communicator_.end(is_in_order);
  is_over_ = true;
}

void NcclLink::make() {
  auto buffer = device().allocate(buffer_bytes_, devices::Where::on_device, {equipment_.stream.get()});
  if (!buffer) {
    ready_ = std::move(buffer.error());
    return;
  }
  buffer_ = std::move(*buffer);
  ready_ = communicator_.make(ids_, group_.me.value, group_.size(), without_nvls_,
                              Deadline::after(milliseconds_of(start_timeout_s_)));
}

Error NcclLink::named(Error error) const {
  if (!communicator_.is_stopped() && !error.is_a_consequence) error.message += " on " + describe(world_, world_.rank);
  return error;
}

std::unique_ptr<Task> NcclLink::plan(const Collective& collective) {
  if (!std::exchange(is_being_made_, true)) issuer().push(this, [this] { make(); });
  return plan_collective(*this, collective);
}

// The figures are rough: what matters is that all ranks have the same ones, and the order of magnitude, for the choice
// between flat, hierarchical and staged. NCCL itself chooses between trees and rings.
//
// Adasum is what it is with other Horovods over NCCL: the mean of the ranks of a node. Nodes are combined by the
// hierarchical algorithm.
Cost NcclLink::cost(const Collective& collective) const {
  if (collective.device != device().kind()) return Cost::impossible();
  if (reduces(collective.verb) && !can_reduce(collective.dtype, collective.op)) return Cost::impossible();
  const auto is_here = [this](Rank rank) { return world_.member(rank).node == world_.member(group_.ranks[0]).node; };
  const bool is_in_a_node = std::ranges::all_of(group_.ranks, is_here);
  const double launch_s = 5e-6, hop_s = is_in_a_node ? 1e-6 : 2e-6, byte_s = is_in_a_node ? 1 / 100e9 : 1 / 10e9;
  const double rounds = std::bit_width(static_cast<unsigned>(group_.size()) - 1u), seats = group_.size();
  const double bytes = static_cast<double>(collective.count) * static_cast<double>(size_of(collective.dtype));
  const double bytes_s = bytes * byte_s, part = (seats - 1) / seats;
  double seconds = launch_s;
  switch (collective.verb) {
    case Verb::adasum:
      if (!is_in_a_node || !is_floating(collective.dtype)) return Cost::impossible();
      [[fallthrough]];
    case Verb::allreduce: seconds += 2 * (rounds * hop_s + part * bytes_s); break;
    case Verb::broadcast: seconds += rounds * hop_s + bytes_s; break;
    case Verb::allgather:
    case Verb::reduce_scatter:
    case Verb::alltoall: seconds += rounds * hop_s + part * bytes_s; break;
    case Verb::barrier:
    case Verb::join:
    case Verb::add_set:
    case Verb::remove_set: return Cost::impossible();
  }
  return {seconds, !(reduces(collective.verb) && is_floating(collective.dtype))};
}

}  // namespace hvd::transport::over_nccl
