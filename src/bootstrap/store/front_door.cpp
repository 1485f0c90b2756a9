#include "bootstrap/store/front_door.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "native/posix/processes/process.hpp"

namespace hvd::bootstrap {
namespace {

constexpr std::chrono::milliseconds pause_time(200);
constexpr std::chrono::milliseconds patience_in_a_crowd(500);

}  // namespace

Status FrontDoor::open(posix::WatchList& events, std::vector<int> listeners, std::size_t most,
                       std::chrono::milliseconds patience) {
  events_ = &events;
  listeners_ = std::move(listeners);
  most_ = most;
  patience_ = patience;
  clock_ = posix::FileDescriptor(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!clock_) return system_error("cannot limit the time of new connections (timerfd_create)", errno);
  HVD_RETURN_IF_ERROR(events.add(clock_.get(), of_clock));
  for (int listener : listeners_) HVD_RETURN_IF_ERROR(events.add(listener, of_listeners));
  return {};
}

std::chrono::milliseconds FrontDoor::time_of_strangers() const {
  return is_crowded() ? std::min(patience_, patience_in_a_crowd) : patience_;
}

void FrontDoor::add(std::uint64_t number) {
  strangers_.emplace(number, Clock::now());
  if (strangers_.size() == 1 || is_crowded()) set_clock();
  set_open(!is_paused_ && !is_crowded());
}

void FrontDoor::remove(std::uint64_t number) {
  if (strangers_.erase(number) == 0) return;
  set_open(!is_paused_ && !is_crowded());
}

void FrontDoor::pause() {
  is_paused_ = true;
  set_open(false);
  set_clock();
}

std::vector<std::uint64_t> FrontDoor::take_overdue() {
  std::uint64_t ticks = 0;
  (void)!::read(clock_.get(), &ticks, sizeof ticks);
  std::vector<std::uint64_t> overdue;
  const Clock::time_point latest = Clock::now() - time_of_strangers();
  for (const auto& [number, since] : strangers_) {
    if (since > latest) break;
    overdue.push_back(number);
  }
  is_paused_ = false;
  set_open(!is_crowded());
  set_clock();
  return overdue;
}

// The poll is level-triggered: if a listener were watched while no connection may be accepted, it would wake its owner
// again and again.
void FrontDoor::set_open(bool open) {
  if (open == is_open_) return;
  is_open_ = open;
  for (int listener : listeners_) {
    if (open) (void)events_->add(listener, of_listeners);
    else events_->remove(listener);
  }
}

// Sets the clock for the end of the oldest stranger's time, or for the end of a pause. Otherwise the clock stops.
void FrontDoor::set_clock() {
  auto span = std::chrono::milliseconds(0);
  if (!strangers_.empty())
    span = std::max(
        std::chrono::ceil<std::chrono::milliseconds>(strangers_.begin()->second + time_of_strangers() - Clock::now()),
        std::min(patience_, pause_time));
  if (is_paused_) span = pause_time;
  itimerspec time{};
  time.it_value.tv_sec = span.count() / 1000;
  time.it_value.tv_nsec = span.count() % 1000 * 1'000'000;
  ::timerfd_settime(clock_.get(), 0, &time, nullptr);
}

void make_room_for_descriptors(std::size_t count) {
  // The descriptors that the process may need besides. The limit applies to the highest descriptor, not to their count.
  constexpr std::uint64_t others = 64;
  posix::DescriptorLimit limit = posix::descriptor_limit();
  std::uint64_t needed = count + others;
  if (int lowest = ::dup(STDERR_FILENO); lowest >= 0) {
    needed += static_cast<std::uint64_t>(lowest);
    ::close(lowest);
  }
  if (limit.soft < needed) posix::set_descriptor_limit({std::min(needed, limit.hard), limit.hard});
}

}  // namespace hvd::bootstrap
