#pragma once
// The only runtime of this Python process: who may use it, until when, and what a forked child sees of it.
#include "python/core/python_api.hpp"

#include <atomic>
#include <cstdint>
#include <optional>

#include "api/horovod.h"

namespace hvd::python {

// All members but `users_` change with the GIL held.
class Session {
 public:
  static Session& get();

  // Null before init and after shutdown, and always in a forked child.
  hvd_runtime* runtime() const { return runtime_; }
  // Grows with every init. An operation that was prepared under another number is no longer valid.
  std::uint64_t generation() const { return generation_; }
  bool forked() const { return forked_; }
  // The place of this process in the job. Its forked children know it, too. Null before init and after shutdown.
  struct Place {
    hvd_world world{};
    int mpi_thread_level = -1;
  };
  const Place* place() const { return place_ ? &*place_ : nullptr; }
  // True while shutdown() ends the runtime. The engine may still write into tensors then.
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }

  // Call init() and shutdown() with the GIL held. They release it while they block. False if a Python error is set.
  bool init(const hvd_init_options& options);
  bool shutdown();

  // Delays shutdown() while a thread is in the runtime without the GIL. Construct it with the GIL held, while runtime()
  // is not null. Never keep it while Python code may run: that code might be a signal's handler that shuts down.
  class Use {
   public:
    explicit Use(Session& session) : session_(session) { session_.users_.fetch_add(1); }
    ~Use() { session_.users_.fetch_sub(1); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Session& session_;
  };

 private:
  Session();
  static void after_fork_in_child();

  hvd_runtime* runtime_ = nullptr;
  std::optional<Place> place_;
  std::uint64_t generation_ = 0;
  bool changing_ = false;  // a thread is inside init() or shutdown()
  bool forked_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<int> users_{0};
};

// Returns the runtime. If there is none, returns null with a Python error of type `error` that says why.
hvd_runtime* runtime_or_raise(PyObject* error);
// Returns the place, which forked children may ask for, too. If there is none, returns null with a ValueError.
const Session::Place* place_or_raise();

}  // namespace hvd::python
