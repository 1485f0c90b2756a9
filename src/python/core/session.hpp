#pragma once
// The one runtime of this Python process: who may use it and until when, and what a forked child can still ask.
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

  // Null if Horovod is not initialised, and always null in a forked child.
  hvd_runtime* runtime() const { return runtime_; }
  // Grows with every init(). An operation that was prepared under another number cannot be used.
  std::uint64_t generation() const { return generation_; }
  bool forked() const { return forked_; }
  // The place of this process in the job. Forked children of this process may ask for it, too. Null before init and
  // after shutdown.
  struct Place {
    hvd_world world{};
    int mpi_thread_level = -1;
    int local_device = -1;
  };
  const Place* place() const { return place_ ? &*place_ : nullptr; }
  // True while shutdown() ends the runtime. The engine may still write into tensors then.
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }

  // The caller must hold the GIL. Both functions release the GIL while they block. On failure they return false with a
  // Python error set.
  bool init(const hvd_init_options& options);
  bool shutdown();

  // While a Use exists, shutdown() waits. A thread makes one, with the GIL held and runtime() not null, before it
  // enters the runtime without the GIL. No Python code may run while it exists: a signal's handler could call
  // shutdown() and would wait forever.
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

// Returns the runtime, or null with a Python error of type `error` that says why there is none.
hvd_runtime* runtime_or_raise(PyObject* error);
// Returns this process's place in the job, or null with a ValueError. Forked children may call it, too.
const Session::Place* place_or_raise();

}  // namespace hvd::python
