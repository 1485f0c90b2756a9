#include "python/core/session.hpp"

#include <pthread.h>
#include <time.h>

#include "python/core/errors.hpp"
#include "python/core/handles.hpp"

namespace hvd::python {

Session& Session::get() {
  static Session session;
  return session;
}

Session::Session() {
  pthread_atfork(nullptr, nullptr, &Session::after_fork_in_child);
}

// The child has a copy of the runtime's memory but none of its threads. It must neither use nor free the runtime.
void Session::after_fork_in_child() {
  Session& session = get();
  if (session.runtime_ != nullptr || session.changing_) session.forked_ = true;
  session.runtime_ = nullptr;
  session.changing_ = false;
  session.stopping_ = false;
  session.users_ = 0;
}

bool Session::init(const hvd_init_options& options) {
  if (runtime_ != nullptr) return true;
  if (changing_) {
    PyErr_SetString(PyExc_ValueError, "hvd.init() or hvd.shutdown() is under way in another thread of this process");
    return false;
  }
  changing_ = true;
  hvd_runtime* made = nullptr;
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = hvd_init_with(&made, &options);
  Py_END_ALLOW_THREADS;
  changing_ = false;
  if (status != HVD_OK) {
    raise_last(PyExc_ValueError);
    return false;
  }
  Place place;
  place.world.struct_size = sizeof place.world;
  (void)hvd_get_world(made, &place.world);  // this call cannot fail for a runtime that has just been made
  place.mpi_thread_level = hvd_mpi_thread_level(made);
  place.local_device = hvd_local_device(made);
  place_ = place;
  runtime_ = made;
  ++generation_;
  return true;
}

bool Session::shutdown() {
  place_.reset();
  if (runtime_ == nullptr) return true;
  hvd_runtime* ending = runtime_;
  runtime_ = nullptr;  // from here on no new call can use the runtime
  changing_ = true;
  stopping_ = true;
  Py_BEGIN_ALLOW_THREADS;
  // The operations that threads wait for end with an error, and the threads leave the runtime.
  hvd_stop(ending);
  while (users_.load() != 0) {
    timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  Py_END_ALLOW_THREADS;
  order_streams_of_pending(ending);
  Py_BEGIN_ALLOW_THREADS;
  hvd_shutdown(ending);
  Py_END_ALLOW_THREADS;
  stopping_ = false;
  changing_ = false;
  return true;
}

hvd_runtime* runtime_or_raise(PyObject* error) {
  Session& session = Session::get();
  if (session.runtime() == nullptr && session.forked()) {
    raise(error,
          "this process was forked from a rank of the job and is no rank itself: Horovod can only be used in the "
          "process that called hvd.init(). Pass what the child needs (rank, size, data) to it.");
  } else if (session.runtime() == nullptr) {
    (void)hvd_get_world(nullptr, nullptr);  // fails with the text for it
    raise_last(error);
  }
  return session.runtime();
}

const Session::Place* place_or_raise() {
  const Session::Place* place = Session::get().place();
  if (place == nullptr) (void)runtime_or_raise(PyExc_ValueError);
  return place;
}

}  // namespace hvd::python
