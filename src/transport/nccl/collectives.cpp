// The collectives of NCCL. The engine's thread prepares a job; the issuer's thread packs, calls NCCL, unpacks, and
// records the end, all of which is queued on the stream and runs later.
//
// All seats must make the same calls of NCCL, with the same numbers. So what follows from the batch's record decides
// into how many pieces a batch is cut (a single tensor is one piece, several are cut into pieces of the buffer's size).
// Where the bytes of a piece are is this seat's own business: in the tensors themselves if they are in one run there,
// else in memory of ours.
#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "transport/nccl/link.hpp"
#include "transport/segments/segment_array.hpp"
#include "transport/segments/shares.hpp"
#include "transport/segments/splits.hpp"

namespace hvd::transport::over_nccl {

namespace {

using devices::Memory;
using devices::Move;
using devices::Treatment;
using nccl::Code;

// Nothing if NCCL does not reduce the type.
std::optional<nccl::Type> type_of(DataType dtype) {
  switch (dtype) {
    case DataType::u8: return nccl::Type::u8;
    case DataType::i8: return nccl::Type::i8;
    case DataType::i32: return nccl::Type::i32;
    case DataType::i64: return nccl::Type::i64;
    case DataType::f16: return nccl::Type::f16;
    case DataType::bf16: return nccl::Type::bf16;
    case DataType::f32: return nccl::Type::f32;
    case DataType::f64: return nccl::Type::f64;
    case DataType::u32: return nccl::Type::u32;
    case DataType::u64: return nccl::Type::u64;
    case DataType::boolean:
    case DataType::i16:
    case DataType::u16: break;
  }
  return std::nullopt;
}

// Nothing if NCCL does not do it.
std::optional<nccl::Operation> operation_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::min: return nccl::Operation::min;
    case ReduceOp::max: return nccl::Operation::max;
    case ReduceOp::product: return nccl::Operation::product;
    case ReduceOp::sum: return nccl::Operation::sum;
  }
  return std::nullopt;
}

std::size_t tensors_in(std::span<const Segment> segments) {
  return static_cast<std::size_t>(
      std::ranges::count_if(segments, [](const Segment& segment) { return segment.view.count > 0; }));
}

class NcclTask final : public Task {
 public:
  NcclTask(NcclLink& link, const Collective& collective)
      : link_(link),
        what_(collective),
        element_(size_of(collective.dtype)),
        seats_(link.group().size()),
        me_(link.group().me.value),
        shares_(collective.verb, seats_),
        splits_(seats_),
        given_up_(link.communicator().stopped()) {}
  ~NcclTask() override {
    if (state_.load(std::memory_order_acquire) == State::queued) link_.issuer().forget(&link_);
  }

  void rescale(double prescale, double postscale) override {
    what_.prescale = prescale;
    what_.postscale = postscale;
  }
  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) override {
    if (what_.verb == Verb::alltoall) splits_.resize(sent, received);
    else shares_.resize(sent, received);
  }

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence) override {
    in_.assign(in, what_.dtype);
    out_.assign(out, what_.dtype);
    tensors_in_ = tensors_in(in);
    tensors_out_ = tensors_in(out);
    note_whole(what_.verb == Verb::allgather ? out : in);
    state_.store(State::queued, std::memory_order_relaxed);
    link_.issuer().push(&link_, [this] { run(); });
  }
  Progress step() override {
    switch (state_.load(std::memory_order_acquire)) {
      case State::issued: return Progress::issued;
      case State::failed: return Progress::failed;
      case State::queued: break;
    }
    return link_.communicator().is_stopped() ? Progress::failed : Progress::pending;
  }
  void note_stages(bool wanted) override { stages_.want(wanted); }
  std::span<const StageOnDevice> stages() const override {
    return has_launched() ? stages_.list() : std::span<const StageOnDevice>{};
  }
  bool has_launched() const override { return state_.load(std::memory_order_acquire) == State::issued; }
  // While the task is pending it waits for nothing on the device.
  Event event() const override { return has_launched() ? end_ : Event{}; }
  const Error& failure() const override {
    return state_.load(std::memory_order_acquire) == State::failed ? failure_ : given_up_;
  }

 private:
  enum class State : std::uint8_t { queued, issued, failed };
  // A batch of more pieces than these are enough for is followed no further.
  static constexpr std::size_t most_stages = 48;

  // ---- on the issuer's thread

  void run() {
    Status done = issue();
    extra_.clear();
    if (!done) failure_ = link_.named(std::move(done.error()));
    NcclLink& link = link_;  // the task may be destroyed as soon as its state is known; the link waits for this job
    state_.store(done ? State::issued : State::failed, std::memory_order_release);
    link.report();
  }
  Status issue() {
    HVD_RETURN_IF_ERROR(link_.is_ready());
    HVD_RETURN_IF_ERROR(link_.issuer().follow(&link_, what_.stream));
    stages_.clear();
    queued_at_ = stages_.now();
    HVD_RETURN_IF_ERROR(note(StageOnDevice::What::waits));
    is_looked_after_ = true;
    HVD_RETURN_IF_ERROR(carry_out());
    if (!is_looked_after_) HVD_RETURN_IF_ERROR(look_after());
    auto end = link_.device().record(what_.stream);
    if (!end) return end.error();
    end_ = *end;
    link_.has_issued(end_);
    link_.issuer().has_issued(&link_, what_.stream, end_);
    return {};
  }
  Status carry_out() {
    switch (what_.verb) {
      case Verb::adasum:
      case Verb::allreduce: return allreduce();
      case Verb::broadcast: return broadcast();
      case Verb::allgather: return allgather();
      case Verb::reduce_scatter: return reduce_scatter();
      case Verb::alltoall: return alltoall();
      case Verb::barrier:
      case Verb::join:
      case Verb::add_set:
      case Verb::remove_set: break;
    }
    return Error(ErrorCode::unsupported, std::string("NCCL has no ") + name_of(what_.verb));
  }
  // After an abort the results become NaN: those that are moved by move_results(), the others here. A root's data stay
  // as they are.
  Status look_after() {
    if (!is_floating(what_.dtype) || (is_root() && out_.is_same_memory_as(in_))) return {};
    add_moves(out_, 0, out_.count(), [](std::byte* data, std::int64_t) { return Move{data, data, 0}; });
    return queue_moves({what_.dtype, what_.dtype, 1.0, link_.abort_word()});
  }
  // Notes that what was queued last ends this stage.
  Status note(StageOnDevice::What what) {
    if (!stages_.are_wanted() || stages_.size() == most_stages) return {};
    auto end = link_.device().record(what_.stream);
    if (!end) return end.error();
    if (what == StageOnDevice::What::travels) stages_.add_travel("nccl", what_.verb, 0, queued_at_, *end);
    else stages_.add(what, 0, queued_at_, *end);
    return {};
  }
  bool is_root() const { return row_of(what_.verb).has_root() && what_.root.value == me_; }

  // ---- memory

  std::int64_t elements_of_buffer() const { return static_cast<std::int64_t>(link_.buffer_bytes() / element_); }
  // Returns memory for so many elements: the buffer, or memory of the pool that is free again when the stream has used
  // it.
  Result<std::byte*> take(std::int64_t count) {
    if (count <= elements_of_buffer()) return link_.buffer();
    auto memory =
        link_.device().allocate(static_cast<std::size_t>(count) * element_, devices::Where::on_device, what_.stream);
    if (!memory) return memory.error();
    extra_.push_back(std::move(*memory));
    return extra_.back().data();
  }
  // Returns the address of a range if it is in one run of memory, else null.
  std::byte* run_of(const SegmentArray& array, std::int64_t begin, std::int64_t count) const {
    std::byte *first = nullptr, *next = nullptr;
    bool is_one_run = true;
    array.visit(begin, count, [&](std::byte* data, std::int64_t part) {
      if (next == nullptr) first = data;
      is_one_run = is_one_run && data != nullptr && (next == nullptr || data == next);
      next = data + static_cast<std::size_t>(part) * element_;
    });
    return is_one_run ? first : nullptr;
  }

  template <typename MoveOf>
  void add_moves(const SegmentArray& array, std::int64_t begin, std::int64_t count, MoveOf move_of) {
    array.visit(begin, count, [&](std::byte* data, std::int64_t part) {
      Move one = move_of(data, part);
      one.count = part;
      if (one.to != nullptr) moves_.push_back(one);
    });
  }
  // Adds the moves of a range of the tensors to one run of memory, or back.
  void gather(const SegmentArray& array, std::int64_t begin, std::int64_t count, std::byte* to) {
    add_moves(array, begin, count, [&](std::byte* data, std::int64_t part) {
      return Move{data, std::exchange(to, to + static_cast<std::size_t>(part) * element_), 0};
    });
  }
  void scatter(const SegmentArray& array, std::int64_t begin, std::int64_t count, std::byte* from) {
    add_moves(array, begin, count, [&](std::byte* data, std::int64_t part) {
      return Move{std::exchange(from, from + static_cast<std::size_t>(part) * element_), data, 0};
    });
  }
  // Queues the moves that were added.
  Status move(double scale) {
    if (scale == 1.0) std::erase_if(moves_, [](const Move& it) { return it.from == it.to; });
    if (moves_.empty()) return {};
    HVD_RETURN_IF_ERROR(queue_moves({what_.dtype, what_.dtype, scale, nullptr}));
    return note(StageOnDevice::What::packs);
  }
  Status move_results(double scale) {
    if (moves_.empty()) return {};
    HVD_RETURN_IF_ERROR(queue_moves({what_.dtype, what_.dtype, scale, link_.abort_word()}));
    return note(StageOnDevice::What::unpacks);
  }
  Status queue_moves(const Treatment& treatment) {
    Status moved = moves_.empty() ? Status() : link_.device().move(what_.stream, moves_, treatment);
    moves_.clear();
    return moved;
  }
  // What is there already needs no move.
  Status is_in_place() {
    is_looked_after_ = false;
    return {};
  }

  // ---- verbs

  template <typename Call>
  Status call(Call one) {
    Communicator& communicator = link_.communicator();
    const char* const what = name_of(what_.verb);
    HVD_RETURN_IF_ERROR(communicator.launch(what, [&] {
      return communicator.check(one(communicator.library(), communicator.handle(), what_.stream.handle), what);
    }));
    return note(StageOnDevice::What::travels);
  }

  // A batch of one tensor goes at once.
  std::int64_t piece(std::int64_t total, std::size_t tensors) const {
    return tensors <= 1 ? std::max<std::int64_t>(total, 1) : elements_of_buffer();
  }

  Status allreduce() {
    const std::int64_t total = in_.count(), step = piece(total, tensors_in_);
    for (std::int64_t begin = 0; begin < total; begin += step)
      HVD_RETURN_IF_ERROR(reduce_piece(begin, std::min(step, total - begin)));
    return {};
  }
  Status reduce_piece(std::int64_t begin, std::int64_t count) {
    const std::byte* from = run_of(in_, begin, count);
    std::byte* const result = run_of(out_, begin, count);
    std::byte* to = result;
    if (to == nullptr) {
      auto taken = take(count);
      if (!taken) return taken.error();
      to = *taken;
    }
    if (from == nullptr || what_.prescale != 1.0) {
      gather(in_, begin, count, to);
      HVD_RETURN_IF_ERROR(move(what_.prescale));
      from = to;
    }
    HVD_RETURN_IF_ERROR(call([&](const nccl::Library& nccl, nccl::CommunicatorHandle communicator, void* stream) {
      return nccl.allreduce(from, to, static_cast<std::size_t>(count), *type_of(what_.dtype), *operation_of(what_.op),
                            communicator, stream);
    }));
    const double postscale = what_.verb == Verb::adasum ? what_.postscale / seats_ : what_.postscale;  // of a mean
    if (result != nullptr && postscale == 1.0) return is_in_place();
    scatter(out_, begin, count, to);
    return move_results(postscale);
  }

  Status broadcast() {
    const SegmentArray& array = is_root() ? in_ : out_;
    const std::int64_t total = array.count(), step = piece(total, is_root() ? tensors_in_ : tensors_out_);
    for (std::int64_t begin = 0; begin < total; begin += step) {
      const std::int64_t count = std::min(step, total - begin);
      std::byte* data = run_of(array, begin, count);
      const bool is_packed = data == nullptr;
      if (is_packed) {
        auto taken = take(count);
        if (!taken) return taken.error();
        data = *taken;
      }
      if (is_root() && is_packed) gather(in_, begin, count, data);
      HVD_RETURN_IF_ERROR(move(1.0));
      HVD_RETURN_IF_ERROR(call([&](const nccl::Library& nccl, nccl::CommunicatorHandle communicator, void* stream) {
        return nccl.broadcast(data, data, static_cast<std::size_t>(count) * element_, nccl::Type::i8, what_.root.value,
                              communicator, stream);
      }));
      if (is_root() ? out_.count() > 0 && !out_.is_same_memory_as(in_) : is_packed) {
        scatter(out_, begin, count, data);
        HVD_RETURN_IF_ERROR(move_results(1.0));
      } else {
        HVD_RETURN_IF_ERROR(is_in_place());
      }
    }
    return {};
  }

  // Notes whether the tensors of this list are the shares themselves, one for each seat: a batch of one tensor.
  void note_whole(std::span<const Segment> segments) {
    counts_.clear();
    for (const Segment& segment : segments)
      if (segment.view.count > 0) counts_.push_back(segment.view.count);
  }
  bool are_shares_whole() const {
    std::size_t next = 0;
    for (int seat = 0; seat < seats_; ++seat) {
      if (shares_.count(seat) == 0) continue;
      if (next == counts_.size() || counts_[next++] != shares_.count(seat)) return counts_.size() == 1;
    }
    return next == counts_.size();
  }

  // The parts of all seats that travel together, and where they are from `base` on.
  struct Parts {
    std::vector<std::int64_t> begins, counts, places;
    std::int64_t all = 0;
    bool are_equal = true;
  };
  void cut(std::int64_t number, std::int64_t step) {
    parts_.begins.clear();
    parts_.counts.clear();
    parts_.places.clear();
    parts_.all = 0;
    parts_.are_equal = true;
    for (int seat = 0; seat < seats_; ++seat) {
      const std::int64_t begin = std::min(number * step, shares_.count(seat));
      const std::int64_t count = std::min((number + 1) * step, shares_.count(seat)) - begin;
      parts_.begins.push_back(shares_.begin(seat) + begin);
      parts_.counts.push_back(count);
      parts_.places.push_back(parts_.all);
      parts_.all += count;
      parts_.are_equal = parts_.are_equal && count == parts_.counts.front();
    }
  }
  std::byte* place(std::byte* base, int seat) const {
    return base + static_cast<std::size_t>(parts_.places[static_cast<std::size_t>(seat)]) * element_;
  }
  std::int64_t count_of(int seat) const { return parts_.counts[static_cast<std::size_t>(seat)]; }
  std::size_t bytes_of(int seat) const { return static_cast<std::size_t>(count_of(seat)) * element_; }

  Status allgather() {
    shares_.deal(out_.count());
    const bool is_whole = are_shares_whole();
    const std::int64_t step = is_whole ? std::max<std::int64_t>(shares_.largest(), 1)
                                       : std::max<std::int64_t>(elements_of_buffer() / seats_, 1);
    for (std::int64_t number = 0; number * step < shares_.largest(); ++number) {
      cut(number, step);
      std::byte* const direct = is_whole ? run_of(out_, 0, out_.count()) : nullptr;
      std::byte* base = direct;
      if (base == nullptr) {
        auto taken = take(parts_.all);
        if (!taken) return taken.error();
        base = *taken;
      }
      HVD_RETURN_IF_ERROR(gather_parts(base, number * step));
      if (direct != nullptr) return is_in_place();
      for (int seat = 0; seat < seats_; ++seat)
        scatter(out_, parts_.begins[static_cast<std::size_t>(seat)], count_of(seat), place(base, seat));
      HVD_RETURN_IF_ERROR(move_results(1.0));
    }
    return {};
  }
  Status gather_parts(std::byte* base, std::int64_t begin_in_mine) {
    std::byte* const own = place(base, me_);
    const std::byte* from = run_of(in_, std::min(begin_in_mine, shares_.count(me_)), count_of(me_));
    if (from == nullptr || !parts_.are_equal) {
      gather(in_, std::min(begin_in_mine, shares_.count(me_)), count_of(me_), own);
      HVD_RETURN_IF_ERROR(move(1.0));
      from = own;
    }
    return call([&](const nccl::Library& nccl, nccl::CommunicatorHandle communicator, void* stream) {
      if (parts_.are_equal) return nccl.allgather(from, base, bytes_of(me_), nccl::Type::i8, communicator, stream);
      Code code = Code::success;
      for (int seat = 0; seat < seats_ && code != Code::invalid_argument; ++seat)
        if (count_of(seat) > 0)
          code = worse(code, nccl.broadcast(place(base, seat), place(base, seat), bytes_of(seat), nccl::Type::i8, seat,
                                            communicator, stream));
      return code;
    });
  }

  Status reduce_scatter() {
    shares_.deal(in_.count());
    const bool is_whole = are_shares_whole() && what_.prescale == 1.0;
    const std::int64_t step = is_whole ? std::max<std::int64_t>(shares_.largest(), 1)
                                       : std::max<std::int64_t>(elements_of_buffer() / seats_, 1);
    for (std::int64_t number = 0; number * step < shares_.largest(); ++number) {
      cut(number, step);
      HVD_RETURN_IF_ERROR(
          reduce_parts(is_whole ? run_of(in_, 0, in_.count()) : nullptr, std::min(number * step, shares_.count(me_))));
    }
    return {};
  }
  // `base` has the parts if they are not to be packed.
  Status reduce_parts(std::byte* base, std::int64_t begin_in_mine) {
    const bool is_packed = base == nullptr;
    const std::int64_t mine = count_of(me_);
    std::byte* const direct = run_of(out_, begin_in_mine, mine);
    std::byte* result = direct;
    if (is_packed) {
      auto taken = take(parts_.all);
      if (!taken) return taken.error();
      base = *taken;
      for (int seat = 0; seat < seats_; ++seat)
        gather(in_, parts_.begins[static_cast<std::size_t>(seat)], count_of(seat), place(base, seat));
      HVD_RETURN_IF_ERROR(move(what_.prescale));
      if (result == nullptr) result = place(base, me_);
    } else if (result == nullptr) {
      auto taken = take(mine);
      if (!taken) return taken.error();
      result = *taken;
    }
    HVD_RETURN_IF_ERROR(call([&](const nccl::Library& nccl, nccl::CommunicatorHandle communicator, void* stream) {
      const auto type = *type_of(what_.dtype);
      const auto operation = *operation_of(what_.op);
      if (parts_.are_equal)
        return nccl.reduce_scatter(base, result, static_cast<std::size_t>(mine), type, operation, communicator, stream);
      Code code = Code::success;
      for (int seat = 0; seat < seats_; ++seat)
        if (count_of(seat) > 0)
          code = worse(
              code, nccl.reduce(place(base, seat), seat == me_ ? result : place(base, seat),
                                static_cast<std::size_t>(count_of(seat)), type, operation, seat, communicator, stream));
      return code;
    }));
    if (direct != nullptr && what_.postscale == 1.0) return is_in_place();
    scatter(out_, begin_in_mine, mine, result);
    return move_results(what_.postscale);
  }

  Status alltoall() {
    splits_.check(in_.count(), out_.count(), me_);
    std::byte* from = run_of(in_, 0, in_.count());
    std::byte* const direct = run_of(out_, 0, out_.count());
    std::byte* to = direct;
    const bool is_packed = from == nullptr && in_.count() > 0;
    if (is_packed || (to == nullptr && out_.count() > 0)) {
      auto taken = take((is_packed ? in_.count() : 0) + (to == nullptr ? out_.count() : 0));
      if (!taken) return taken.error();
      if (to == nullptr) to = *taken + (is_packed ? static_cast<std::size_t>(in_.count()) * element_ : 0);
      if (is_packed) from = *taken;
    }
    if (is_packed) gather(in_, 0, in_.count(), from);
    HVD_RETURN_IF_ERROR(move(1.0));
    HVD_RETURN_IF_ERROR(call([&](const nccl::Library& nccl, nccl::CommunicatorHandle communicator, void* stream) {
      Code code = Code::success;
      const auto bytes = [this](std::int64_t count) { return static_cast<std::size_t>(count) * element_; };
      for (int seat = 0; seat < seats_; ++seat) {
        if (splits_.sent(seat) > 0)
          code = worse(code, nccl.send(from + bytes(splits_.sent_begin(seat)), bytes(splits_.sent(seat)),
                                       nccl::Type::i8, seat, communicator, stream));
        if (splits_.received(seat) > 0)
          code = worse(code, nccl.receive(to + bytes(splits_.received_begin(seat)), bytes(splits_.received(seat)),
                                          nccl::Type::i8, seat, communicator, stream));
      }
      return code;
    }));
    if (direct != nullptr) return is_in_place();
    scatter(out_, 0, out_.count(), to);
    return move_results(1.0);
  }
  static Code worse(Code one, Code other) { return one == Code::success || one == Code::in_progress ? other : one; }

  NcclLink& link_;
  Collective what_;
  const std::size_t element_;
  const int seats_, me_;
  Shares shares_;
  Splits splits_;
  SegmentArray in_, out_;
  std::size_t tensors_in_ = 0, tensors_out_ = 0;
  std::vector<std::int64_t> counts_;
  NotedStages stages_;  // of the issuer's thread until the task is issued
  Clock::time_point queued_at_{};
  std::atomic<State> state_{State::issued};
  Event end_;
  Error failure_{ErrorCode::system, "NCCL"};
  const Error given_up_;
  // Of the issuer's thread.
  bool is_looked_after_ = true;
  std::vector<Move> moves_;
  std::vector<Memory> extra_;
  Parts parts_;
};

}  // namespace

bool can_reduce(DataType dtype, ReduceOp op) noexcept {
  return operation_of(op) && type_of(dtype);
}

std::unique_ptr<Task> plan_collective(NcclLink& link, const Collective& collective) {
  return std::make_unique<NcclTask>(link, collective);
}

}  // namespace hvd::transport::over_nccl
