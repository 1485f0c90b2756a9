#include "runtime/observers/registry.hpp"

#include <utility>

namespace hvd::runtime {

ObserverRegistry::ObserverRegistry(std::vector<Observer*> first, std::function<void()> wake)
    : wake_(std::move(wake)), observers_(std::move(first)) {}

void ObserverRegistry::add(Observer& observer) {
  change({&observer, true});
}

void ObserverRegistry::remove(Observer& observer) {
  change({&observer, false});
}

void ObserverRegistry::change(Change change) {
  std::unique_lock lock(mutex_);
  if (!is_open_) return make(change);
  waiting_.push_back(change);
  std::uint64_t mine = ++asked_;
  has_changes_.store(true, std::memory_order_release);
  wake_();
  made_changes_.wait(lock, [&] { return made_ >= mine; });
}

void ObserverRegistry::make(const Change& change) {
  if (change.comes) observers_.push_back(change.observer);
  else std::erase(observers_, change.observer);
}

void ObserverRegistry::make_changes() {
  std::lock_guard lock(mutex_);
  make_waiting();
}

void ObserverRegistry::make_waiting() {
  for (const Change& change : waiting_) make(change);
  waiting_.clear();
  made_ = asked_;
  has_changes_.store(false, std::memory_order_relaxed);
  made_changes_.notify_all();
}

void ObserverRegistry::open() {
  std::lock_guard lock(mutex_);
  is_open_ = true;
}

void ObserverRegistry::close() {
  std::lock_guard lock(mutex_);
  make_waiting();
  is_open_ = false;
}

}  // namespace hvd::runtime
