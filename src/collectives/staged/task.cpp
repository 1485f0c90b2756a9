// Stages a collective through host memory, in chunks:
//
//  1. Out: the chunk is copied from the device into a slot of host memory, on a stream of the task's own. The first
//     copy begins when the caller's tensors are ready. The task asks for that event instead of queueing behind it,
//     because the caller's stream might never reach it.
//  2. Travel: when the copy is complete, the chunk's collective runs over the host team. Only one chunk travels at a
//     time. Meanwhile the next chunks are copied out, as long as there are free slots.
//  3. Back: the result is copied to the device on a second stream, so that both directions are used.
//  4. When the copy back of the last chunk has been queued, the task is issued. A slot is used again when its copy back
//     is complete, by this batch or by the next one.
#include <array>
#include <optional>
#include <string>

#include "collectives/schedule/stage_tasks.hpp"
#include "collectives/selection/selector.hpp"
#include "collectives/staged/cut.hpp"
#include "collectives/staged/task.hpp"

namespace hvd::collectives::staged {

namespace {

using devices::Device;

// Returns the collective in host memory for one chunk.
Collective on_host(const Collective& collective) {
  Collective host = collective;
  host.device = DeviceKind::host;
  host.stream = {};
  host.count = static_cast<std::int64_t>(chunk_bytes / size_of(collective.dtype));
  return host;
}

Collective count_of_chunks() {
  Collective most;
  most.dtype = DataType::i64;
  most.op = ReduceOp::max;
  most.count = 1;
  return most;
}

class StagedTask final : public Task {
 public:
  StagedTask(const Collective& collective, Team& team)
      : verb_(collective.verb),
        dtype_(collective.dtype),
        element_bytes_(size_of(collective.dtype)),
        me_(team.group.me),
        is_root_(collective.root == me_),
        rank_(team.group.rank_at(me_)),
        in_stream_(collective.stream),
        team_(*team.host),
        device_(*team.device),
        cut_(collective, team.group, static_cast<std::int64_t>(chunk_bytes / element_bytes_)),
        stage_(on_host(collective), team.host),
        chunk_counter_(count_of_chunks(), team.host) {
    prepare(out_);
    prepare(back_);
  }
  ~StagedTask() override {
    if (awaited_.token != 0) (void)device_.query(awaited_, &devices::nobody());
    for (const auto& stream : {out_, back_})
      if (stream) devices::finish(device_, {stream.get()});
  }

  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) override {
    cut_.resize(sent, received);
  }
  void rescale(double prescale, double postscale) override { stage_.rescale(prescale, postscale); }

  void restart(std::span<const Segment> in, std::span<const Segment> out, Sequence sequence) override {
    in_.assign(in, dtype_);
    out_tensors_.assign(out, dtype_);
    cut_.restart(in, out);
    is_in_place_ = verb_ == Verb::broadcast && is_root_ && out_tensors_.is_same_memory_as(in_);
    sequence_ = sequence;
    copied_ = travelled_ = 0;
    traveller_ = nullptr;
    end_ = awaited_ = {};
    chunks_ = cut_.chunks();
    is_ready_ = false;
    auto ready = device_.record(in_stream_);
    if (ready) ready_ = *ready;
    else refuse(ready.error());
    stages_.clear();
    began_at_ = stages_.now();
    if (verb_ == Verb::alltoall) count_chunks();
    else note_wait();
  }

  Progress step() override {
    if (failure_) return Progress::failed;
    if (counter_ != nullptr) {
      if (Progress progress = step_counter(); progress != Progress::done) return progress;
    }
    while (travelled_ < chunks_) {
      copy_out();
      if (!failure_ && traveller_ == nullptr) set_off();
      if (failure_) return Progress::failed;
      if (traveller_ == nullptr) return Progress::pending;
      Progress progress = traveller_->step();
      if (progress == Progress::failed) failure_ = traveller_->failure();
      if (progress != Progress::done) return progress;
      traveller_ = nullptr;
      stages_.add_travel(team_.transport, verb_, travelled_, set_off_at_);
      copy_back();
      ++travelled_;
      if (failure_) return Progress::failed;
    }
    return chunks_ == 0 ? Progress::done : Progress::issued;
  }

  Event event() const override {
    if (traveller_ != nullptr || counter_ != nullptr) return {};
    return travelled_ == chunks_ ? end_ : awaited_;
  }
  const Error& failure() const override { return *failure_; }
  void note_stages(bool wanted) override { stages_.want(wanted); }
  std::span<const StageOnDevice> stages() const override { return stages_.list(); }
  Seat waiting_for() const override {
    const Task* task = counter_ != nullptr ? counter_ : traveller_;
    return task == nullptr ? Seat{-1} : task->waiting_for();
  }

 private:
  using What = StageOnDevice::What;
  struct Buffer {
    devices::Memory memory;
    std::size_t bytes = 0;
  };
  struct Slot {
    Chunk chunk;
    Buffer in, out;  // host memory of the slot; if the data keep their place, `in` is used for both
    Event copied, returned;
  };
  Slot& slot_of(std::int64_t chunk) { return slots_[static_cast<std::size_t>(chunk) % slots_.size()]; }

  void prepare(std::shared_ptr<void>& stream) {
    auto made = device_.stream();
    if (made) stream = std::move(*made);
    else refuse(made.error());
  }
  void refuse(const Error& error) {
    if (!failure_)
      failure_ = Error(error.code, "rank " + std::to_string(rank_.value) + " cannot stage " + name_of(verb_) +
                                       " through host memory: " + error.message);
  }
  // Returns true if the event has come. Otherwise the task waits for it.
  bool is_there(Event event) {
    auto there = device_.query(event, nullptr);
    if (!there) refuse(there.error());
    if (there && !*there) awaited_ = event;
    return there && *there;
  }

  void note_wait() {
    if (chunks_ > 0) stages_.add(What::waits, 0, began_at_, ready_);
  }

  // ---- how many chunks an alltoall has ----------------------------------------------------------------------------

  void count_chunks() {
    most_chunks_ = chunks_;
    counter_ = &chunk_counter_.any_size();
    const Segment number{TensorView{&most_chunks_, 1, DataType::i64}};
    counter_->restart({&number, 1}, {&number, 1}, next_sequence());
  }
  Progress step_counter() {
    Progress progress = counter_->step();
    if (progress == Progress::failed) failure_ = counter_->failure();
    if (progress != Progress::done) return progress;
    counter_ = nullptr;
    chunks_ = most_chunks_;
    note_wait();
    return progress;
  }

  Sequence next_sequence() { return Sequence{sequence_.value++}; }

  // ---- out ----------------------------------------------------------------------------------------------------------

  void copy_out() {
    is_ready_ = is_ready_ || is_there(ready_);
    if (!is_ready_) return;
    for (; copied_ < chunks_ && !failure_; ++copied_) {
      Slot& slot = slot_of(copied_);
      if (copied_ >= travelled_ + static_cast<std::int64_t>(slots_.size()) || !is_there(slot.returned)) return;
      cut_.describe(copied_, slot.chunk);
      reserve(slot);
      if (failure_) return;
      moves_.clear();
      std::byte* to = slot.in.memory.data();
      for (const Range& range : slot.chunk.in)
        in_.visit(range.begin, range.count, [&](const std::byte* data, std::int64_t count) {
          moves_.push_back({data, to, count});
          to += static_cast<std::size_t>(count) * element_bytes_;
        });
      const auto since = stages_.now();
      slot.copied = moves_.empty() ? Event{} : move(out_);
      stages_.add(What::to_host, copied_, since, slot.copied);
    }
  }

  void reserve(Slot& slot) {
    auto bytes_of = [this](const std::vector<Range>& ranges) {
      std::size_t bytes = 0;
      for (const Range& range : ranges) bytes += static_cast<std::size_t>(range.count) * element_bytes_;
      return bytes;
    };
    if (has_own_out()) reserve(slot.out, bytes_of(slot.chunk.out));
    reserve(slot.in,
            has_own_out() ? bytes_of(slot.chunk.in) : std::max(bytes_of(slot.chunk.in), bytes_of(slot.chunk.out)));
  }
  void reserve(Buffer& buffer, std::size_t bytes) {
    if (buffer.memory && bytes <= buffer.bytes) return;
    bytes = std::max(bytes, chunk_bytes);
    auto memory = device_.allocate(bytes, devices::Where::on_host, {});
    if (!memory) return refuse(memory.error());
    buffer.memory = std::move(*memory);
    buffer.bytes = bytes;
  }
  bool has_own_out() const { return row_of(verb_).has_rows(); }

  // Queues the listed moves and returns the event behind them.
  Event move(const std::shared_ptr<void>& stream) {
    const Stream queue{stream.get()};
    if (!moves_.empty())
      if (auto moved = device_.move(queue, moves_, {dtype_, dtype_, 1.0}); !moved) refuse(moved.error());
    if (failure_) return {};
    auto event = device_.record(queue);
    if (!event) refuse(event.error());
    return event ? *event : Event{};
  }

  // ---- travel -------------------------------------------------------------------------------------------------------

  void set_off() {
    if (copied_ == travelled_) return;
    Slot& slot = slot_of(travelled_);
    if (!is_there(slot.copied)) return;
    list(slot.chunk.in, slot.in.memory.data(), host_in_);
    list(slot.chunk.out, has_own_out() ? slot.out.memory.data() : slot.in.memory.data(), host_out_);
    if (verb_ == Verb::broadcast && is_root_) host_out_.clear();
    traveller_ = slot.chunk.counts.empty() ? &stage_.any_size() : &stage_.with_counts(slot.chunk.counts);
    if (verb_ == Verb::alltoall) traveller_->resize(slot.chunk.sent, slot.chunk.received);
    set_off_at_ = stages_.now();
    traveller_->restart(host_in_, host_out_, next_sequence());
  }
  void list(const std::vector<Range>& ranges, std::byte* data, std::vector<Segment>& to) {
    to.clear();
    for (const Range& range : ranges) {
      if (range.count > 0) to.push_back({TensorView{data, range.count, dtype_}});
      data += static_cast<std::size_t>(range.count) * element_bytes_;
    }
  }

  // ---- back ---------------------------------------------------------------------------------------------------------

  void copy_back() {
    Slot& slot = slot_of(travelled_);
    const std::byte* from = has_own_out() ? slot.out.memory.data() : slot.in.memory.data();
    moves_.clear();
    for (const Range& range : slot.chunk.out) {
      if (is_in_place_) break;
      out_tensors_.visit(range.begin, range.count, [&](std::byte* data, std::int64_t count) {
        if (data != nullptr) moves_.push_back({from, data, count});
        from += static_cast<std::size_t>(count) * element_bytes_;
      });
    }
    // The event is also needed without moves: a caller's stream that waits for it knows that the tensors were read.
    const auto since = stages_.now();
    end_ = slot.returned = move(back_);
    if (!moves_.empty()) stages_.add(What::from_host, travelled_, since, end_);
  }

  const Verb verb_;
  const DataType dtype_;
  const std::size_t element_bytes_;
  const Seat me_;
  const bool is_root_;
  const Rank rank_;
  const Stream in_stream_;
  const Team& team_;  // over links of the host
  Device& device_;
  std::shared_ptr<void> out_, back_;  // the streams for copies to the host and back
  Cut cut_;
  StageTasks stage_, chunk_counter_;
  SegmentArray in_, out_tensors_;
  Sequence sequence_;
  std::int64_t chunks_ = 0, copied_ = 0, travelled_ = 0;
  std::array<Slot, 3> slots_;
  Task* traveller_ = nullptr;  // the collective of the travelling chunk
  Task* counter_ = nullptr;    // the task in which the seats tell each other how many chunks they need
  std::int64_t most_chunks_ = 0;
  std::vector<Segment> host_in_, host_out_;
  std::vector<devices::Move> moves_;  // of one chunk, in one direction
  bool is_ready_ = false;             // the caller's stream has reached the batch
  bool is_in_place_ = false;          // true on a root whose output already has the data
  Event ready_, awaited_, end_;
  NotedStages stages_;
  Clock::time_point began_at_{}, set_off_at_{};
  std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<Task> plan(const Collective& collective, Team& team) {
  return std::make_unique<StagedTask>(collective, team);
}

}  // namespace hvd::collectives::staged
