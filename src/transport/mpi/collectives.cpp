#include "transport/mpi/collectives.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/panic.hpp"
#include "transport/segments/segment_array.hpp"
#include "transport/segments/shares.hpp"
#include "transport/segments/splits.hpp"

namespace hvd::transport::over_mpi {

using mpi::CollectiveCall;
using mpi::Completion;
using mpi::Request;

class CollectiveTask final : public Task {
 public:
  CollectiveTask(Collectives& owner, const Collective& collective)
      : owner_(owner),
        verb_(collective.verb),
        dtype_(collective.dtype),
        op_(collective.op),
        prescale_(collective.prescale),
        postscale_(collective.postscale),
        scaled_copy_(devices::reduce_kernel(collective.dtype, ReduceOp::sum)),
        root_(collective.root.value),
        seats_(owner.communicator_.size()),
        me_(owner.communicator_.rank()),
        shares_(verb_, seats_),
        splits_(seats_) {}
  ~CollectiveTask() override {
    // Memory that MPI still uses is not freed, because MPI may still write to it.
    for (Slot* slot : {&slots_[0], &slots_[1], &agreement_})
      if (slot->is_busy) (void)new Slot(std::move(*slot));  // NOLINT(bugprone-unhandled-exception-at-new): no way on
  }

  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) override {
    if (verb_ == Verb::alltoall) splits_.resize(sent, received);
    else shares_.resize(sent, received);
  }

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence) override {
    turn_ = owner_.next_turn_++;
    input_.assign(in, dtype_);
    output_.assign(out, dtype_);
    deal_out();
    next_ = ended_ = 0;
    is_over_ = false;
  }

  Progress step() override {
    if (owner_.aborted_) return fail(*owner_.aborted_);
    if (is_over_) return Progress::done;
    if (owner_.serving_ != turn_) return Progress::pending;
    if (!has_agreed_ && !agreement_.is_busy) {
      if (Status started = start_agreeing(); !started) return fail(started.error());
    }
    while (!has_agreed_ || ended_ < steps_) {
      if (!has_agreed_) {
        if (Progress progress = look_at(agreement_); progress == Progress::failed) return progress;
        if (!agreement_.is_busy) end_agreeing();
      }
      while (next_ < steps_ && next_ - ended_ < static_cast<std::int64_t>(slots_.size())) {
        if (Status started = start(next_); !started) return fail(started.error());
        ++next_;
      }
      if (ended_ == next_) return Progress::pending;  // the agreement has not ended yet
      if (Progress progress = look_at(slot_of(ended_)); progress != Progress::done) return progress;
      unpack(ended_++);
    }
    is_over_ = true;
    ++owner_.serving_;
    return Progress::done;
  }
  void rescale(double prescale, double postscale) override {
    prescale_ = prescale;
    postscale_ = postscale;
  }
  const Error& failure() const override { return failure_; }

 private:
  struct Slot {
    Request request{};
    bool is_busy = false;
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
    std::vector<int> counts, displacements;
    std::vector<int> received_counts, received_displacements;  // used only for alltoall

    std::byte* reserve(std::size_t wanted) {
      if (wanted > bytes) {
        memory = std::make_unique_for_overwrite<std::byte[]>(wanted);
        bytes = wanted;
      }
      return memory.get();
    }
  };

  Slot& slot_of(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }

  // Computes the number of elements of each seat and the number of steps for them. Both are equal on all seats.
  void deal_out() {
    std::int64_t most = std::max<std::int64_t>(static_cast<std::int64_t>(owner_.step_bytes_ / size_of(dtype_)), 1);
    has_agreed_ = verb_ != Verb::alltoall;
    if (verb_ == Verb::alltoall) {
      splits_.check(input_.count(), output_.count(), me_);
      step_ = std::max<std::int64_t>(most / seats_, 1);
      steps_ = 1;
      return;
    }
    if (verb_ == Verb::barrier) {
      steps_ = 1;
      return;
    }
    if (!has_shares(verb_)) {
      bool is_root = verb_ == Verb::broadcast && me_ == root_;
      total_ = is_root ? input_.count() : output_.count();
      step_ = most;
      steps_ = (total_ + most - 1) / most;
      return;
    }
    total_ = verb_ == Verb::allgather ? output_.count() : input_.count();
    shares_.deal(total_);
    step_ = std::max<std::int64_t>(most / seats_, 1);
    steps_ = (shares_.largest() + step_ - 1) / step_;
  }

  // Starts the agreement. Each seat passes the number of steps that it needs; the result is the largest number.
  Status start_agreeing() {
    std::int64_t wanted = 1;
    for (int seat = 0; seat < seats_; ++seat)
      wanted = std::max(wanted, (std::max(splits_.sent(seat), splits_.received(seat)) + step_ - 1) / step_);
    CollectiveCall call;
    call.verb = Verb::allreduce;
    call.dtype = DataType::i64;
    call.op = ReduceOp::max;
    call.count = 1;
    call.output = agreement_.reserve(sizeof wanted);
    std::memcpy(call.output, &wanted, sizeof wanted);
    return start(call, agreement_);
  }
  void end_agreeing() {
    std::memcpy(&steps_, agreement_.memory.get(), sizeof steps_);
    has_agreed_ = true;
  }

  // Return the part of a seat's share that belongs to a step.
  std::int64_t begin_in_share(std::int64_t number, int seat) const {
    return std::min(number * step_, shares_.count(seat));
  }
  std::int64_t count_in_step(std::int64_t number, int seat) const {
    return begin_in_share(number + 1, seat) - begin_in_share(number, seat);
  }

  Status start(std::int64_t number) {
    Slot& slot = slot_of(number);
    CollectiveCall call;
    call.verb = verb_;
    call.dtype = dtype_;
    call.op = op_;
    call.root = root_;
    switch (verb_) {
      case Verb::allreduce:
      case Verb::broadcast: pack_whole(number, slot, call); break;
      case Verb::allgather:
      case Verb::reduce_scatter: pack_by_seat(number, slot, call); break;
      case Verb::alltoall: pack_for_seats(number, slot, call); break;
      case Verb::barrier:
      case Verb::join:
      case Verb::adasum:
      case Verb::add_set:
      case Verb::remove_set: break;
    }
    return start(call, slot);
  }
  Status start(const CollectiveCall& call, Slot& slot) {
    HVD_RETURN_IF_ERROR(owner_.communicator_.start(call, slot.request));
    slot.is_busy = true;
    owner_.under_way_.begin();
    return {};
  }
  Progress look_at(Slot& slot) {
    std::size_t unused = 0;
    switch (owner_.communicator_.test(slot.request, unused)) {
      case Completion::pending: return Progress::pending;
      case Completion::cancelled:
      case Completion::failed: settle(slot); return fail(owner_.communicator_.failure());
      case Completion::done: break;
    }
    settle(slot);
    return Progress::done;
  }

  void pack_whole(std::int64_t number, Slot& slot, CollectiveCall& call) {
    call.count = std::min(step_, total_ - number * step_);
    std::byte* memory = slot.reserve(static_cast<std::size_t>(call.count) * size_of(dtype_));
    call.output = memory;
    if (verb_ == Verb::allreduce)
      input_.gather_scaled(number * step_, call.count, memory, scaled_copy_, {prescale_, 1.0});
    else if (me_ == root_) input_.gather(number * step_, call.count, memory);
  }

  // Packs the parts of all seats for this step one after the other. Behind them follows this seat's own part.
  void pack_by_seat(std::int64_t number, Slot& slot, CollectiveCall& call) {
    slot.counts.clear();
    slot.displacements.clear();
    std::int64_t all = 0;
    for (int seat = 0; seat < seats_; ++seat) {
      slot.counts.push_back(static_cast<int>(count_in_step(number, seat)));
      slot.displacements.push_back(static_cast<int>(all));
      all += slot.counts.back();
    }
    call.counts = slot.counts;
    call.displacements = slot.displacements;
    std::int64_t mine = count_in_step(number, me_);
    std::byte* together = slot.reserve(static_cast<std::size_t>(all + mine) * size_of(dtype_));
    std::byte* own = together + static_cast<std::size_t>(all) * size_of(dtype_);
    if (verb_ == Verb::allgather) {
      input_.gather(begin_in_share(number, me_), mine, own);
      call.input = own;
      call.output = together;
      return;
    }
    std::byte* to = together;
    for (int seat = 0; seat < seats_; ++seat) {
      std::int64_t count = count_in_step(number, seat);
      input_.gather_scaled(shares_.begin(seat) + begin_in_share(number, seat), count, to, scaled_copy_,
                           {prescale_, 1.0});
      to += static_cast<std::size_t>(count) * size_of(dtype_);
    }
    call.input = together;
    call.output = own;
  }

  // Return the part of a split that goes to a seat, or comes from it, in this step.
  std::int64_t split_begin(std::int64_t number, std::int64_t split) const { return std::min(number * step_, split); }
  int split_count(std::int64_t number, std::int64_t split) const {
    return static_cast<int>(split_begin(number + 1, split) - split_begin(number, split));
  }

  // If data go only one way between two seats, one meaningless element goes the other way. With Open MPI 4.1 a rank
  // that only sends, or only receives, may wait forever if the message is too long for an eager one.
  static int padded(int count, int opposite) { return count == 0 && opposite > 0 ? 1 : count; }

  // Packs the elements for all seats one after the other. Behind them follows room for the elements that come from the
  // seats.
  void pack_for_seats(std::int64_t number, Slot& slot, CollectiveCall& call) {
    int sent = 0, received = 0;
    for (auto* list : {&slot.counts, &slot.displacements, &slot.received_counts, &slot.received_displacements})
      list->clear();
    for (int seat = 0; seat < seats_; ++seat) {
      int there = split_count(number, splits_.sent(seat)), back = split_count(number, splits_.received(seat));
      slot.counts.push_back(padded(there, back));
      slot.displacements.push_back(sent);
      sent += slot.counts.back();
      slot.received_counts.push_back(padded(back, there));
      slot.received_displacements.push_back(received);
      received += slot.received_counts.back();
    }
    std::byte* memory = slot.reserve(static_cast<std::size_t>(sent + received) * size_of(dtype_));
    for (int seat = 0; seat < seats_; ++seat) {
      auto at = static_cast<std::size_t>(seat);
      input_.gather(splits_.sent_begin(seat) + split_begin(number, splits_.sent(seat)),
                    split_count(number, splits_.sent(seat)),
                    memory + static_cast<std::size_t>(slot.displacements[at]) * size_of(dtype_));
    }
    call.input = memory;
    call.output = memory + static_cast<std::size_t>(sent) * size_of(dtype_);
    call.counts = slot.counts;
    call.displacements = slot.displacements;
    call.received_counts = slot.received_counts;
    call.received_displacements = slot.received_displacements;
  }

  void unpack_from_seats(std::int64_t number, const Slot& slot) {
    int sent = slot.displacements.back() + slot.counts.back();
    for (int seat = 0; seat < seats_; ++seat) {
      auto at = static_cast<std::size_t>(seat);
      output_.scatter(
          splits_.received_begin(seat) + split_begin(number, splits_.received(seat)),
          split_count(number, splits_.received(seat)),
          slot.memory.get() + static_cast<std::size_t>(sent + slot.received_displacements[at]) * size_of(dtype_));
    }
  }

  void unpack(std::int64_t number) {
    Slot& slot = slot_of(number);
    const std::byte* from = slot.memory.get();
    switch (verb_) {
      case Verb::allreduce:
      case Verb::broadcast: {
        std::int64_t count = std::min(step_, total_ - number * step_);
        // The root may have an empty output. Nothing is copied to it then.
        if (verb_ == Verb::allreduce || output_.count() > 0)
          output_.scatter_scaled(number * step_, count, from, scaled_copy_, {1.0, postscale_});
        return;
      }
      case Verb::allgather:
        for (int seat = 0; seat < seats_; ++seat) {
          std::int64_t count = count_in_step(number, seat);
          output_.scatter(shares_.begin(seat) + begin_in_share(number, seat), count, from);
          from += static_cast<std::size_t>(count) * size_of(dtype_);
        }
        return;
      case Verb::alltoall: return unpack_from_seats(number, slot);
      case Verb::reduce_scatter: {
        std::int64_t all = slot.displacements.back() + slot.counts.back();
        output_.scatter_scaled(begin_in_share(number, me_), count_in_step(number, me_),
                               from + static_cast<std::size_t>(all) * size_of(dtype_), scaled_copy_, {1.0, postscale_});
        return;
      }
      case Verb::barrier:
      case Verb::join:
      case Verb::adasum:
      case Verb::add_set:
      case Verb::remove_set: return;
    }
  }

  void settle(Slot& slot) {
    slot.is_busy = false;
    owner_.under_way_.end();
    owner_.has_ended_ = true;
  }

  Progress fail(const Error& error) {
    failure_ = error;
    return Progress::failed;
  }

  Collectives& owner_;
  const Verb verb_;
  const DataType dtype_;
  const ReduceOp op_;
  double prescale_, postscale_;
  const devices::ReduceKernel scaled_copy_;
  const int root_, seats_, me_;
  Shares shares_;  // used only for allgather and reduce_scatter
  Splits splits_;  // used only for alltoall
  SegmentArray input_, output_;
  std::int64_t total_ = 0, step_ = 1, steps_ = 0;
  std::uint64_t turn_ = 0;
  std::int64_t next_ = 0, ended_ = 0;  // numbers of the steps that were started and of those that have ended
  bool is_over_ = true;
  bool has_agreed_ = true;  // steps_ is the number on which all seats have agreed
  std::array<Slot, 2> slots_;
  Slot agreement_;
  Error failure_{ErrorCode::system, "MPI"};
};

Collectives::Collectives(mpi::Communicator& communicator, const mpi::MpiPlugin& calls, int ranks_per_node,
                         std::size_t step_bytes)
    : communicator_(communicator), calls_(calls), ranks_per_node_(ranks_per_node), step_bytes_(step_bytes) {}

// The cost uses the units of the cost model of messages (collectives/schedule/cost_model.hpp). It assumes what MPI
// libraries do: doubling for small arrays, and the bytes of a ring for large ones. Two costs are added: the time in
// which MPI schedules a non-blocking collective, and the copies in and out, which do not overlap with the transfer.
Cost Collectives::cost(const Collective& collective) const {
  if (collective.device != DeviceKind::host) return Cost::impossible();
  bool is_reduction = reduces(collective.verb);
  if (is_reduction && !calls_.reduces(collective.dtype, collective.op)) return Cost::impossible();
  constexpr double schedule_s = 4e-6, copied_byte_s = 1 / 8e9;
  double latency_s = ranks_per_node_ > 1 ? 3e-6 : 1e-6;
  double byte_s = ranks_per_node_ > 1 ? ranks_per_node_ / 10e9 : 1 / 8e9;
  double seats = communicator_.size();
  double rounds = std::bit_width(static_cast<unsigned>(communicator_.size()) - 1u);
  double bytes = static_cast<double>(collective.count) * static_cast<double>(size_of(collective.dtype));
  double seconds = schedule_s + 2 * bytes * copied_byte_s;
  switch (collective.verb) {
    case Verb::barrier: seconds += rounds * latency_s; break;
    case Verb::broadcast:
      seconds += std::min(rounds * (latency_s + bytes * byte_s), 2 * rounds * latency_s + 2 * bytes * byte_s);
      break;
    case Verb::allreduce:
      seconds += std::min(rounds * (latency_s + bytes * byte_s),
                          2 * rounds * latency_s + 2 * bytes * byte_s * (seats - 1) / seats);
      break;
    case Verb::allgather:
    case Verb::reduce_scatter: seconds += rounds * latency_s + bytes * byte_s * (seats - 1) / seats; break;
    // Libraries send all messages at once. The algorithm pairwise does not copy its pieces, and its cost is not higher.
    case Verb::alltoall:
      seconds += std::ceil((seats - 1) / 8) * latency_s + bytes * byte_s * (seats - 1) / seats;
      break;
    case Verb::join:
    case Verb::adasum:
    case Verb::add_set:
    case Verb::remove_set: return Cost::impossible();
  }
  return {seconds, !(is_reduction && is_floating(collective.dtype))};
}

std::unique_ptr<Task> Collectives::plan(const Collective& collective) {
  return std::make_unique<CollectiveTask>(*this, collective);
}

bool Collectives::abandon(const Error& reason) {
  if (!aborted_) aborted_ = reason;
  return under_way_.any();
}

}  // namespace hvd::transport::over_mpi
