#include "runtime/observers/timeline.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/text/cut_text.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::runtime {

namespace {

// An event is to be in the file at most a tenth of a second after it happened.
constexpr auto time_between_writes = std::chrono::milliseconds(50);
// The most records that a use of an operation may still need, including the stages of its batch.
constexpr std::size_t records_of_a_use = 6;
constexpr std::size_t bytes_at_once = 128 << 10;
// The time of a core that others want which the writer takes between two writes: less than 2 %.
constexpr auto share_of_time = std::chrono::microseconds(700);
// If a yield takes longer than this, another thread has run.
constexpr auto longest_yield = std::chrono::microseconds(50);
constexpr std::size_t longest_message = 600;
constexpr std::size_t most_ways = 256;

std::int64_t microseconds(auto since_epoch) {
  return std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
}

}  // namespace

Result<std::unique_ptr<Timeline>> Timeline::open(Settings settings) {
  auto file = TraceFile::create(settings.path);
  if (!file) return file.error();
  Clock::time_point start = Clock::now();
  settings.header.start_since_epoch_us = microseconds(std::chrono::system_clock::now().time_since_epoch());
  settings.header.start_of_steady_clock_us = microseconds(start.time_since_epoch());
  std::unique_ptr<Timeline> timeline(new Timeline(settings, std::move(*file), start));
  HVD_RETURN_IF_ERROR(timeline->file_.flush());
  auto thread = posix::start_thread("hvd-timeline", [raw = timeline.get()] { raw->write(); });
  if (!thread) return thread.error();
  timeline->thread_ = std::move(*thread);
  return timeline;
}

Timeline::Timeline(const Settings& settings, TraceFile file, Clock::time_point start)
    : start_(start),
      queue_(std::max<std::size_t>(settings.queue_records, 64)),
      places_(TraceEvents::places),
      file_(std::move(file)),
      events_(file_, settings.header, settings.marks_batches) {}

Timeline::~Timeline() {
  if (!thread_.joinable()) return;  // the timeline was never opened
  ends_.store(true, std::memory_order_release);
  wake_.post();
  thread_.join();
}

// ---- the engine's thread

std::size_t Timeline::reserved() const {
  return open_ * records_of_a_use + issued_.size();
}

std::uint16_t Timeline::number_of_place(const Operation& operation) {
  return static_cast<std::uint16_t>(operation.number % TraceEvents::places);
}

void Timeline::submitted(const Operation& operation) {
  if (has_failed_.load(std::memory_order_relaxed)) return;
  Place& place = place_of(operation);
  std::size_t text_bytes =
      place.operation == operation.number + 1
          ? 0
          : sizeof(TraceOperation) + operation.signature.shape.size() * 8 + operation.entry->name.size();
  std::size_t needed = records_of_a_use + reserved() + TraceQueue::records_for(text_bytes) + 1;
  if (is_to_be_woken_.load(std::memory_order_relaxed) && !queue_.has_room(queue_.size() / 2 + needed)) {
    is_to_be_woken_.store(false, std::memory_order_relaxed);
    wake_.post();
  }
  if (place.is_open || !queue_.has_room(needed)) {
    ++dropped_;
    return;
  }
  if (dropped_ > 0) queue_.put(what_was_dropped());
  if (text_bytes > 0) introduce(operation);
  place = {operation.number + 1, true};
  ++open_;
  TraceRecord record;
  record.kind = TraceRecord::Kind::submitted;
  record.place = number_of_place(operation);
  record.time_ns = since_start(operation.since);
  record.value = static_cast<std::uint64_t>(operation.submission.first_dimension);
  queue_.put(record);
}

TraceRecord Timeline::what_was_dropped() {
  TraceRecord dropped;
  dropped.kind = TraceRecord::Kind::dropped;
  dropped.time_ns = now();
  dropped.value = std::exchange(dropped_, 0);
  return dropped;
}

void Timeline::introduce(const Operation& operation) {
  const Signature& signature = operation.signature;
  TraceOperation constant{
      operation.entry->set.value, static_cast<std::uint8_t>(signature.verb), static_cast<std::uint8_t>(signature.dtype),
      signature.transient ? std::uint8_t{1} : std::uint8_t{0}, static_cast<std::uint8_t>(signature.shape.size())};
  text_.assign(reinterpret_cast<const char*>(&constant), sizeof constant);
  text_.append(reinterpret_cast<const char*>(signature.shape.data()), signature.shape.size() * sizeof(std::int64_t));
  text_ += operation.entry->name;
  TraceRecord record;
  record.kind = TraceRecord::Kind::operation;
  record.place = number_of_place(operation);
  queue_.put(record, text_);
}

void Timeline::ready(ProcessSetId set, std::string_view name, Rank rank) {
  // This record is left out first when there is little room, because nothing depends on it.
  if (!queue_.has_room(reserved() + TraceQueue::records_for(name.size()) + queue_.size() / 4)) return;
  TraceRecord record;
  record.kind = TraceRecord::Kind::ready;
  record.time_ns = now();
  record.value = std::uint64_t{static_cast<std::uint32_t>(set.value)} << 32 | static_cast<std::uint32_t>(rank.value);
  queue_.put(record, name);
}

bool Timeline::is_recorded(const Operation& operation) {
  const Place& place = place_of(operation);
  return place.is_open && place.operation == operation.number + 1;
}

std::int64_t Timeline::moment_of(Moment& last, Sequence batch) {
  if (last.batch != batch.value) last = {batch.value, now()};
  return last.time_ns;
}

void Timeline::agreed(const Operation& operation, Sequence batch) {
  if (!is_recorded(operation)) return;
  TraceRecord record;
  record.kind = TraceRecord::Kind::agreed;
  record.place = number_of_place(operation);
  record.time_ns = moment_of(agreed_, batch);
  record.value = batch.value;
  queue_.put(record);
}

void Timeline::stage(Sequence batch, std::string_view what) {
  begin_activity(batch, {}, what);
}

void Timeline::connecting(Sequence batch, std::string_view transport) {
  begin_activity(batch, {}, "INIT_" + in_capitals(transport));
}

void Timeline::started(Sequence batch, std::string_view transport, std::string_view algorithm) {
  begin_activity(batch, transport.empty() ? algorithm : transport, algorithm);
}

void Timeline::begin_activity(Sequence batch, std::string_view transport, std::string_view algorithm) {
  std::size_t text_bytes = transport.size() + 1 + algorithm.size();
  // This record is kept even if no use of the batch is recorded. If there is no room for it, only the stages are
  // missing.
  if (!queue_.has_room(reserved() + 1 + TraceQueue::records_for(text_bytes))) return;
  int way = find_way(transport, algorithm);
  if (way < 0) return;
  TraceRecord record;
  record.kind = TraceRecord::Kind::started;
  record.number = static_cast<std::uint8_t>(way);
  record.time_ns = now();
  record.value = batch.value;
  queue_.put(record);
}

int Timeline::find_way(std::string_view transport, std::string_view algorithm) {
  for (std::size_t i = 0; i < ways_.size(); ++i) {
    std::string_view way = ways_[i];
    if (way.size() == transport.size() + 1 + algorithm.size() && way.starts_with(transport) &&
        way[transport.size()] == '\0' && way.ends_with(algorithm))
      return static_cast<int>(i);
  }
  if (ways_.size() == most_ways) return -1;
  ways_.push_back(std::string(transport) + '\0' + std::string(algorithm));
  TraceRecord record;
  record.kind = TraceRecord::Kind::way;
  record.number = static_cast<std::uint8_t>(ways_.size() - 1);
  queue_.put(record, ways_.back());
  return static_cast<int>(ways_.size() - 1);
}

void Timeline::issued(Sequence batch, std::string_view device, std::string_view name) {
  if (std::ranges::find(issued_, batch.value) == issued_.end()) stages_began(batch, device, name, Clock::now());
}

void Timeline::stages_began(Sequence batch, std::string_view device, std::string_view name, Clock::time_point at) {
  name = cut_text(name, longest_message);
  const std::size_t text_bytes = device.size() + 1 + name.size();
  if (!queue_.has_room(reserved() + 1 + TraceQueue::records_for(text_bytes))) return;
  text_.assign(device).append(1, '\0').append(name);
  TraceRecord record;
  record.kind = TraceRecord::Kind::issued;
  record.time_ns = since_start(at);
  record.value = batch.value;
  queue_.put(record, text_);
  issued_.push_back(batch.value);
}

void Timeline::stage_ended(Sequence batch, const StageOnDevice& stage, Clock::time_point begin, Clock::time_point end) {
  if (std::ranges::find(issued_, batch.value) == issued_.end()) return;
  const std::string name = activity_of(stage);
  const std::int64_t begin_ns = since_start(begin);
  const std::size_t records = TraceQueue::records_for(sizeof begin_ns) + TraceQueue::records_for(name.size() + 1);
  if (!queue_.has_room(reserved() + records)) return;
  const int way = find_way({}, name);
  if (way < 0) return;
  TraceRecord record;
  record.kind = TraceRecord::Kind::stage_ended;
  record.number = static_cast<std::uint8_t>(way);
  record.place = stage.part;
  record.time_ns = since_start(end);
  record.value = batch.value;
  queue_.put(record, {reinterpret_cast<const char*>(&begin_ns), sizeof begin_ns});
}

void Timeline::ended(Sequence batch) {
  if (std::erase(issued_, batch.value) == 0) return;  // issued before the timeline was opened
  TraceRecord record;
  record.kind = TraceRecord::Kind::ended;
  record.time_ns = now();
  record.value = batch.value;
  queue_.put(record);
}

void Timeline::finished(const Operation& operation, Sequence batch) {
  if (!is_recorded(operation)) return;
  TraceRecord record;
  record.kind = TraceRecord::Kind::finished;
  record.place = number_of_place(operation);
  record.time_ns = moment_of(finished_, batch);
  queue_.put(record);
  place_of(operation).is_open = false;
  --open_;
}

void Timeline::failed(const Operation& operation, const Error& error) {
  if (!is_recorded(operation)) return;
  std::string_view message = cut_text(error.message, longest_message);
  if (!queue_.has_room(reserved() + TraceQueue::records_for(message.size()))) message = {};
  TraceRecord record;
  record.kind = TraceRecord::Kind::failed;
  record.place = number_of_place(operation);
  record.time_ns = now();
  queue_.put(record, message);
  place_of(operation).is_open = false;
  --open_;
}

// ---- the thread that writes

void Timeline::write() {
  while (!ends_.load(std::memory_order_acquire)) {
    Clock::time_point next = Clock::now() + time_between_writes;
    bool others_wait = !write_queue();
    sleep_until(next, !others_wait);
  }
  write_queue();
  if (has_failed_.load(std::memory_order_relaxed)) return;
  if (dropped_ > 0) events_.take(what_was_dropped(), {});  // the engine has ended its calls
  events_.close(now());
  if (auto status = file_.close(); !status) give_up(status.error());
}

// Sleeps until `time` or the end. If `or_much_to_do` is set, a queue that fills up also ends the sleep.
void Timeline::sleep_until(Clock::time_point time, bool or_much_to_do) {
  for (Clock::time_point now = Clock::now(); now < time; now = Clock::now()) {
    std::uint32_t announced = wake_.announce();
    is_to_be_woken_.store(or_much_to_do, std::memory_order_relaxed);
    if (ends_.load(std::memory_order_acquire)) return wake_.retract();
    wake_.sleep(announced, time - now);
    if (or_much_to_do && !is_to_be_woken_.load(std::memory_order_relaxed)) return;
  }
  is_to_be_woken_.store(false, std::memory_order_relaxed);
}

// Writes the records of the queue. After its share of time the writer goes on only while no other thread wants the
// core. Returns false if another thread did. At the end of the timeline it writes everything in any case.
bool Timeline::write_queue() {
  constexpr unsigned records_between_clocks = 128;
  TraceRecord record;
  std::string text;
  bool has_failed = has_failed_.load(std::memory_order_relaxed), may_go_on = true;
  auto flush = [&] {
    auto status = file_.flush();
    if (!status) give_up(status.error());
    has_failed = !status;
  };
  Clock::time_point began = Clock::now();
  for (unsigned count = 1; may_go_on && queue_.take(record, text); ++count) {
    if (has_failed) continue;
    events_.take(record, text);
    if (file_.buffered_bytes() >= bytes_at_once) flush();
    if (count % records_between_clocks != 0 || Clock::now() - began < share_of_time) continue;
    may_go_on = ends_.load(std::memory_order_acquire) || !others_want_the_core();
    began = Clock::now();
  }
  if (!has_failed) flush();
  return may_go_on;
}

bool Timeline::others_want_the_core() {
  Clock::time_point before = Clock::now();
  std::this_thread::yield();
  return Clock::now() - before > longest_yield;
}

void Timeline::give_up(const Error& error) {
  has_failed_.store(true, std::memory_order_relaxed);
  log::warning(error.message + "; the timeline ends here, the job goes on");
}

}  // namespace hvd::runtime
