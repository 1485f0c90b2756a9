#pragma once
// The observers of one engine. Any thread may add and remove them. The engine takes over the changes between two looks,
// and only the engine calls the observers.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "runtime/observers/observer.hpp"

namespace hvd::runtime {

class ObserverRegistry {
 public:
  // The observers in `first` are there from the start. `wake` ends the engine's sleep.
  ObserverRegistry(std::vector<Observer*> first, std::function<void()> wake);

  // May be called on any thread except the engine's. They return after the engine's next step. After add() the observer
  // gets all events. After remove() no call of it is under way or will come. Operations may be in flight meanwhile, so
  // the end of an operation may be the first event of it that an observer gets.
  void add(Observer& observer);
  void remove(Observer& observer);

  // ---- the engine's thread
  // Between open() and close() changes wait for take_changes(). Before and after, no observer is called, and changes
  // are made at once.
  void open();
  void close();
  void take_changes() {
    if (has_changes_.load(std::memory_order_acquire)) make_changes();
  }
  const std::vector<Observer*>& all() const { return observers_; }

 private:
  struct Change {
    Observer* observer;
    bool comes;
  };
  void change(Change change);
  void make(const Change& change);
  void make_changes();
  void make_waiting();

  std::function<void()> wake_;
  std::vector<Observer*> observers_;  // only the engine uses it while the registry is open
  std::atomic<bool> has_changes_{false};
  std::mutex mutex_;
  std::condition_variable made_changes_;
  bool is_open_ = false;
  std::vector<Change> waiting_;
  std::uint64_t asked_ = 0, made_ = 0;  // numbers of changes so far
};

}  // namespace hvd::runtime
