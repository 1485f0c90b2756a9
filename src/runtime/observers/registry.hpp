#pragma once
// The observers of one engine. They come and go on any thread; the engine takes the changes between two looks, and it
// alone calls the observers.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "runtime/observer.hpp"

namespace hvd::runtime {

class ObserverRegistry {
 public:
  // `first` are there from the start. `wake` ends the engine's sleep.
  ObserverRegistry(std::vector<Observer*> first, std::function<void()> wake);

  // On any thread but the engine's; waits for the engine's next look. After add() the observer hears of everything;
  // after remove() no call into it is under way or can come. Operations may be in flight meanwhile: the first thing
  // that an observer hears of one may be its end.
  void add(Observer& observer);
  void remove(Observer& observer);

  // ---- the engine's thread
  // Between open() and close() changes wait for take_changes(). Before and after, nobody is called, and changes are
  // made at once.
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
  std::vector<Observer*> observers_;  // the engine's own while it is open
  std::atomic<bool> has_changes_{false};
  std::mutex mutex_;
  std::condition_variable made_changes_;
  bool is_open_ = false;
  std::vector<Change> waiting_;
  std::uint64_t asked_ = 0, made_ = 0;  // changes so far
};

}  // namespace hvd::runtime
