#include "devices/cuda/watcher.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::devices::cuda {

using hvd::cuda::Code;
using hvd::cuda::Context;

namespace {

constexpr std::chrono::seconds patience{2};  // with a driver that does not return
constexpr int looks_between_questions = 16;  // the driver knows of a failure, the words do not

// An eighth of the time that it has taken so far, so that a wake-up is never late by much more than that.
std::chrono::nanoseconds nap_after(std::chrono::nanoseconds waited) {
  return std::clamp<std::chrono::nanoseconds>(waited / 8, std::chrono::microseconds(10),
                                              std::chrono::microseconds(500));
}

}  // namespace

Watcher::~Watcher() {
  if (hvd::cuda::is_forked()) return;
  std::unique_lock lock(state_->mutex);
  state_->is_over = true;
  state_->news.notify_all();
  if (!state_->news.wait_for(lock, patience, [this] { return !state_->has_thread; }))
    log::warning("NVIDIA's driver does not answer; its thread is left behind");
}

Status Watcher::watch(Event event, posix::WaitWord* wake) {
  std::lock_guard lock(state_->mutex);
  if (!state_->has_thread) {
    auto thread = posix::start_thread("hvd-cuda", [state = state_] { run(*state); });
    if (!thread) return thread.error();
    thread->detach();
    state_->has_thread = true;
  }
  auto& all = state_->waiting;
  auto found = std::ranges::find(all, event.token, [](const Waiting& one) { return one.event.token; });
  if (found == all.end()) all.push_back({event, wake});
  else if (wake != nullptr) found->wake = wake;
  state_->news.notify_all();
  return {};
}

void Watcher::forget(Event event) {
  std::lock_guard lock(state_->mutex);
  std::erase_if(state_->waiting, [event](const Waiting& one) { return one.event.token == event.token; });
}

// Returns true if somebody still waits.
bool Watcher::look(State& state, bool asks_for_failure) {
  Events& events = *state.watched.events;
  Health& health = *state.watched.health;
  std::vector<Event> questions;
  {
    std::lock_guard lock(state.mutex);
    for (const Waiting& one : state.waiting)
      if (events.is_of_program(one.event) || (asks_for_failure && questions.empty())) questions.push_back(one.event);
  }
  for (const Event event : questions) {
    const Code code = events.ask_driver(event);
    if (code == Code::success) events.set_come(event);
    else if (code != Code::not_ready)
      health.fail(state.watched.context->error(code, "the work of a stream has failed"));
  }
  std::lock_guard lock(state.mutex);
  std::erase_if(state.waiting, [&](const Waiting& one) {
    if (!health.has_failed() && !events.has_come(one.event)) return false;
    if (one.wake != nullptr) one.wake->post();
    return true;
  });
  return !state.waiting.empty();
}

void Watcher::run(State& state) {
  {
    const Context::Use use(*state.watched.context);
    std::unique_lock lock(state.mutex);
    while (!state.is_over) {
      if (state.waiting.empty()) state.news.wait(lock);
      const auto since = std::chrono::steady_clock::now();
      for (int looks = 1; !state.is_over && !state.waiting.empty(); ++looks) {
        lock.unlock();
        if (look(state, looks % looks_between_questions == 0))
          std::this_thread::sleep_for(nap_after(std::chrono::steady_clock::now() - since));
        lock.lock();
      }
    }
  }
  state.watched = {};  // the device is about to end, and gives back what it has to the driver
  std::lock_guard lock(state.mutex);
  state.has_thread = false;
  state.news.notify_all();
}

}  // namespace hvd::devices::cuda
