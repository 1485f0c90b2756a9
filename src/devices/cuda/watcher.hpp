#pragma once
// The thread "hvd-cuda" of a device. It wakes those that sleep until an event has come, asks the driver for events of
// the program's streams, and notices that the device has failed. It only runs while somebody waits.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "devices/cuda/events.hpp"
#include "native/posix/memory/wait_word.hpp"

namespace hvd::devices::cuda {

class Watcher {
 public:
  // Everything here is kept until the thread has ended.
  struct Watched {
    std::shared_ptr<const hvd::cuda::Context> context;
    std::shared_ptr<Health> health;
    std::shared_ptr<Events> events;
  };
  explicit Watcher(Watched watched) : state_(std::make_shared<State>(std::move(watched))) {}
  // Waits for the thread, but not for a driver that hangs.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // Posts `wake` when the event has come or the device has failed. It replaces the word of an earlier call; with null,
  // the earlier word stays.
  Status watch(Event event, posix::WaitWord* wake);
  // The event has come, and its word may be destroyed after this call.
  void forget(Event event);

 private:
  struct Waiting {
    Event event;
    posix::WaitWord* wake;
  };
  struct State {
    explicit State(Watched all) : watched(std::move(all)) {}
    Watched watched;
    std::mutex mutex;
    std::condition_variable news;
    std::vector<Waiting> waiting;
    bool has_thread = false, is_over = false;
  };
  static void run(State& state);
  static bool look(State& state, bool asks_for_failure);

  const std::shared_ptr<State> state_;
};

}  // namespace hvd::devices::cuda
