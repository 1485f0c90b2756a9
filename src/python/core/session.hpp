#pragma once
// The one runtime of this Python process: who may use it, until when, and what a forked child sees of it.
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

  // Null unless initialised (and in a forked child always).
  hvd_runtime* runtime() const { return runtime_; }
  // Grows with every init: what was prepared under another number is stale.
  std::uint64_t generation() const { return generation_; }
  bool forked() const { return forked_; }
  // The place of this process in the job, which its forked children know, too. Null before init and after shutdown.
  struct Place {
    hvd_world world{};
    int mpi_thread_level = -1;
  };
  const Place* place() const { return place_ ? &*place_ : nullptr; }
  // True while shutdown() ends the runtime: the engine may still write into tensors.
  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }

  // Both are called with the GIL and release it while they block. False with a Python error set.
  bool init(const hvd_init_options& options);
  bool shutdown();

  // Holds off shutdown() while a thread is in the runtime without the GIL. To be opened with the GIL held, over a
  // runtime() that is still there; never held while Python code may run, which might be a signal's handler that shuts
  // down.
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

// The runtime, or null with a Python error that says why there is none (`error`: its type).
hvd_runtime* runtime_or_raise(PyObject* error);
// The same for what forked children may ask, too; a ValueError.
const Session::Place* place_or_raise();

}  // namespace hvd::python
