#include "devices/cuda/events.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/panic.hpp"

namespace hvd::devices::cuda {

using hvd::cuda::Code;
using hvd::cuda::Context;
using hvd::cuda::StreamHandle;

namespace {

constexpr std::size_t page = 4096, spread = 64;  // bytes; a cache line for each word
constexpr auto number_of_default_stream = std::numeric_limits<unsigned long long>::max();  // the driver has small ones

StreamHandle handle_of(Stream stream) {
  return static_cast<StreamHandle>(stream.handle);
}

std::uint32_t load(const std::uint32_t* word) noexcept {
  return std::atomic_ref(*const_cast<std::uint32_t*>(word)).load(std::memory_order_acquire);
}
bool has_reached(const std::uint32_t* word, std::uint32_t number) noexcept {
  return static_cast<std::int32_t>(load(word) - number) >= 0;
}

}  // namespace

Events::Events(std::shared_ptr<const Context> context, const KernelTable& kernels, Health& health)
    : context_(std::move(context)), kernels_(kernels), health_(health) {}

Events::~Events() {
  for (auto& entry : chunks_) delete[] entry.load();
}

Status Events::start() {
  const Context::Use use(*context_);
  int least = 0;
  if (const Code code = context_->driver().context_priorities(&least, &priority_); code != Code::success)
    return context_->error(code, "the priorities of streams are unknown");
  auto stream = hvd::cuda::make_stream(context_, priority_);
  auto word = take_word();
  if (!stream) return stream.error();
  if (!word) return word.error();
  // Some drivers have the function and refuse it.
  if (context_->driver().write_word != nullptr)
    driver_writes_words_ = context_->driver().write_word(stream->get(), reinterpret_cast<hvd::cuda::Address>(*word), 1,
                                                         0) == Code::success;
  has_words_ = driver_writes_words_ || kernels_.lack().empty();
  HVD_RETURN_IF_ERROR(health_.check(*context_, context_->driver().stream_synchronize(stream->get()), "the first work"));
  if (driver_writes_words_ && load(*word) != 1) has_words_ = driver_writes_words_ = false;
  std::lock_guard lock(mutex_);
  free_words_.push_back(*word);
  return {};
}

// ---- streams

Result<StreamHandle> Events::make_stream() {
  auto stream = hvd::cuda::make_stream(context_, priority_);
  if (!stream) return stream.error();
  auto line = std::make_shared<Line>();
  if (has_words_) {
    auto word = take_word();
    if (!word) return word.error();
    line->word = *word;
    std::atomic_ref(*line->word).store(0);
  }
  line->stream = std::move(*stream);
  const StreamHandle handle = line->stream.get();
  std::lock_guard lock(mutex_);
  lines_[handle] = std::move(line);
  return handle;
}

void Events::end_stream(StreamHandle stream) {
  if (hvd::cuda::is_forked()) return;  // not even the words are there
  const std::shared_ptr<Line> line = line_of({stream});
  auto end = health_.has_failed() ? Result<Event>(Event{}) : record(*line, stream, For::streams);
  {
    std::lock_guard lock(line->mutex);
    line->has_ended = true;
    if (end) line->end = *end;
    line->stream = {};  // what is queued on it is still done
  }
  std::lock_guard lock(mutex_);
  lines_.erase(stream);
  if (line->word != nullptr) ended_.push_back(line);
  find_free_words();
}

// A word is free when no stream will write it any more.
void Events::find_free_words() {
  std::erase_if(ended_, [this](const std::shared_ptr<Line>& line) {
    if (!has_reached(line->word, line->last)) return false;
    for (Slot* slot : line->slots) slot->is_known_to_have_come.store(true, std::memory_order_release);
    free_slots_.insert(free_slots_.end(), line->slots.begin(), line->slots.end());
    free_words_.push_back(line->word);
    return true;
  });
}

Result<std::uint32_t*> Events::take_word() {
  std::lock_guard lock(mutex_);
  find_free_words();
  if (free_words_.empty()) {
    auto words = hvd::cuda::make_page_locked(context_, page);
    if (!words) return words.error();
    auto* begin = static_cast<std::byte*>(words->get());
    std::memset(begin, 0, page);
    for (std::size_t at = 0; at < page; at += spread)
      free_words_.push_back(reinterpret_cast<std::uint32_t*>(begin + at));
    pages_.push_back(std::move(*words));
  }
  std::uint32_t* word = free_words_.back();
  free_words_.pop_back();
  return word;
}

std::shared_ptr<Events::Line> Events::line_of(Stream stream) {
  std::lock_guard lock(mutex_);
  auto found = lines_.find(stream.handle);
  return found != lines_.end() ? found->second : program_;
}

// ---- events

Result<Events::Slot*> Events::new_slot() {
  std::unique_lock lock(mutex_);
  if (!free_slots_.empty()) {
    Slot* slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  const std::size_t index = slot_count_;
  if (index / chunk >= chunks_.size())
    return Error(ErrorCode::system, "more than a million events of a GPU have not come yet");
  auto& place = chunks_[index / chunk];
  if (place.load() == nullptr) place.store(new Slot[chunk], std::memory_order_release);
  Slot* slot = place.load() + index % chunk;
  auto event = hvd::cuda::make_event(context_);
  if (!event) return event.error();
  slot->event = std::move(*event);
  slot->token.store(index);  // used no time yet
  ++slot_count_;
  return slot;
}

// Uses the oldest slot of the line again if its event has come.
Result<Events::Slot*> Events::take_slot(Line& line) {
  constexpr std::size_t most_looks = 4;  // events of different streams of the program come in any order
  for (std::size_t i = 0; i < std::min(most_looks, line.slots.size()); ++i) {
    Slot* slot = line.slots[i];
    if (!has_come(*slot)) continue;
    line.slots.erase(line.slots.begin() + static_cast<std::ptrdiff_t>(i));
    return slot;
  }
  if (&line == program_.get() && !line.slots.empty()) {
    // Nobody may have asked the driver for these events. One that has not come is asked for again after all others.
    Slot* slot = line.slots.front();
    line.slots.pop_front();
    if (context_->driver().event_query(slot->event.get()) == Code::success) return slot;
    line.slots.push_back(slot);
  }
  return new_slot();
}

// The driver refuses to record an event of one GPU on a stream of another, so nobody asks whose the stream is before.
Error Events::why_refused(Code code, StreamHandle stream, const char* what) {
  const hvd::cuda::Driver& driver = context_->driver();
  hvd::cuda::ContextHandle its_context = nullptr;
  if (driver.stream_context(stream, &its_context) == Code::success && its_context != context_->handle())
    return Error(ErrorCode::invalid_argument, "this is no stream of cuda device " +
                                                  std::to_string(context_->ordinal()) +
                                                  ": give a stream of the tensor's device");
  return health_.check(*context_, code, what).error();
}

Status Events::refuse_capture(StreamHandle stream) {
  hvd::cuda::CaptureStatus status = hvd::cuda::CaptureStatus::none;
  if (const Code code = context_->driver().stream_capture_status(stream, &status); code != Code::success)
    return why_refused(code, stream, "the stream of a tensor");
  if (status == hvd::cuda::CaptureStatus::none) return {};
  return Error(ErrorCode::invalid_argument,
               "the stream is being captured for a CUDA graph, and an operation of Horovod cannot be a part of one, "
               "because the other ranks would not know of its replays: start it outside of the capture");
}

Status Events::write_word(Line& line, StreamHandle stream) {
  ++line.last;
  if (driver_writes_words_)
    return health_.check(
        *context_, context_->driver().write_word(stream, reinterpret_cast<hvd::cuda::Address>(line.word), line.last, 0),
        "a word for the host");
  SignalList list{line.word, line.last};
  return kernels_.launch(Kernel::signal, 1, stream, &list, health_);
}

Result<Event> Events::record(Stream stream) {
  return record(*line_of(stream), handle_of(stream), For::streams);
}

Result<Event> Events::record_for_host(Stream stream) {
  return record(*line_of(stream), handle_of(stream), For::host);
}

class Events::User {
 public:
  User(std::shared_ptr<Line> line, StreamHandle stream) : line_(std::move(line)), stream_(stream) {}
  const std::shared_ptr<Line> line_;
  const StreamHandle stream_;
};

std::shared_ptr<Events::User> Events::user_of(Stream stream) {
  return std::make_shared<User>(line_of(stream), handle_of(stream));
}

Result<Event> Events::record(const User& user) {
  return record(*user.line_, user.stream_, For::streams);
}

bool Events::are_same(const User& one, const User& other) const noexcept {
  return one.line_ == other.line_ && one.line_ != program_;
}

Result<Event> Events::record(Line& line, StreamHandle stream, For whom) {
  if (health_.has_failed()) return health_.failure();
  const Context::Use use(*context_);
  const bool is_of_program = &line == program_.get();
  if (is_of_program) HVD_RETURN_IF_ERROR(refuse_capture(stream));
  std::lock_guard lock(line.mutex);
  if (line.has_ended) return line.end;
  auto taken = take_slot(line);
  if (!taken) return taken.error();
  Slot& slot = **taken;
  const bool is_for_host = whom == For::host && line.word != nullptr;
  auto queue = [&]() -> Status {
    if (line.word != nullptr) HVD_RETURN_IF_ERROR(write_word(line, stream));
    if (is_for_host) return {};
    constexpr const char* what = "an event could not be recorded";
    const Code code = context_->driver().event_record(slot.event.get(), stream);
    if (code != Code::success && is_of_program) return why_refused(code, stream, what);
    return health_.check(*context_, code, what);
  };
  if (auto queued = queue(); !queued) {
    slot.is_known_to_have_come = true;
    line.slots.push_front(&slot);
    return queued.error();
  }
  const std::uint64_t token = slot.token.load() + (std::uint64_t{1} << index_bits);
  slot.token.store(token, std::memory_order_release);
  slot.is_known_to_have_come.store(false, std::memory_order_relaxed);
  slot.word.store(line.word, std::memory_order_relaxed);
  slot.is_for_host.store(is_for_host, std::memory_order_release);
  slot.number.store(line.last, std::memory_order_release);
  line.slots.push_back(&slot);
  return Event{token};
}

Events::Slot* Events::slot_of(Event event) const noexcept {
  const std::uint64_t index = event.token & ((std::uint64_t{1} << index_bits) - 1);
  if (event.token >> index_bits == 0) return nullptr;
  Slot* chunk_of_it = chunks_[index / chunk].load(std::memory_order_acquire);
  if (chunk_of_it == nullptr) return nullptr;
  Slot* slot = chunk_of_it + index % chunk;
  return slot->token.load(std::memory_order_acquire) == event.token ? slot : nullptr;
}

bool Events::has_come(const Slot& slot) noexcept {
  if (slot.is_known_to_have_come.load(std::memory_order_acquire)) return true;
  const std::uint32_t number = slot.number.load(std::memory_order_acquire);
  const std::uint32_t* word = slot.word.load(std::memory_order_relaxed);
  return word != nullptr && has_reached(word, number);
}

// The slot may be used again between the looks. Then the event has come.
bool Events::has_come(Event event) const noexcept {
  const Slot* slot = slot_of(event);
  return slot == nullptr || has_come(*slot) || slot_of(event) == nullptr;
}

// The default stream can be no part of a capture, so that it is asked nothing if there is nothing to wait for.
Status Events::wait(Stream stream, Event event) {
  if (health_.has_failed()) return health_.failure();
  const StreamHandle handle = handle_of(stream);
  const bool is_of_program = line_of(stream) == program_;
  const bool may_be_captured = is_of_program && handle != hvd::cuda::default_stream();
  std::optional<Wait> wait;
  if (is_of_program && !may_be_captured) wait = Wait{number_of_default_stream, event.token};
  if (!may_be_captured && (has_come(event) || is_known(wait))) return {};
  const Context::Use use(*context_);
  if (is_of_program) HVD_RETURN_IF_ERROR(refuse_capture(handle));
  if (has_come(event)) return {};
  if (may_be_captured) wait = wait_of(handle, event);
  const Slot* slot = slot_of(event);
  if (slot == nullptr || is_known(wait)) return {};
  if (slot->is_for_host.load(std::memory_order_acquire)) {
    if (slot_of(event) != nullptr) panic("a stream is to wait for an event that the driver does not know");
    return {};  // the slot was used again just now
  }
  // If the slot is used again just now, the stream waits for a later point that is queued already.
  HVD_RETURN_IF_ERROR(health_.check(*context_, context_->driver().stream_wait(handle, slot->event.get(), 0),
                                    "a stream cannot wait for an event"));
  if (wait) remember(*wait);
  return {};
}

// Older drivers have no numbers of streams. The default stream of a thread has one handle for all threads.
std::optional<Events::Wait> Events::wait_of(StreamHandle stream, Event event) {
  const hvd::cuda::Driver& driver = context_->driver();
  Wait wait{0, event.token};
  if (driver.stream_id == nullptr || stream == hvd::cuda::default_stream_of_thread() ||
      driver.stream_id(stream, &wait.stream) != Code::success)
    return std::nullopt;
  return wait;
}

bool Events::is_known(const std::optional<Wait>& wait) {
  if (!wait) return false;
  std::lock_guard lock(waits_mutex_);
  return std::ranges::find(last_waits_, *wait) != last_waits_.end();
}

void Events::remember(const Wait& wait) {
  std::lock_guard lock(waits_mutex_);
  last_waits_[next_wait_++ % last_waits_.size()] = wait;
}

// ---- for the watcher

bool Events::is_of_program(Event event) const noexcept {
  const Slot* slot = slot_of(event);
  return slot != nullptr && slot->word.load(std::memory_order_relaxed) == nullptr;
}

Code Events::ask_driver(Event event) const noexcept {
  const Slot* slot = slot_of(event);
  return slot == nullptr ? Code::success : context_->driver().event_query(slot->event.get());
}

void Events::set_come(Event event) noexcept {
  if (Slot* slot = slot_of(event)) slot->is_known_to_have_come.store(true, std::memory_order_release);
}

}  // namespace hvd::devices::cuda
