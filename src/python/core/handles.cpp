#include "python/core/handles.hpp"

#include <time.h>

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "python/core/errors.hpp"
#include "python/core/operation.hpp"
#include "python/core/reference.hpp"
#include "python/core/session.hpp"

namespace hvd::python {
namespace {

// What must live until an operation is done, and what its collecting gives.
struct Entry {
  Reference value;
  Reference result;  // null, or a function: result(handle, value) is given instead
  Reference keep;
  int waiting = 0;  // threads in collect(); the last of them releases the handle
};

// By handle. Whatever is taken out is destroyed afterwards, since that may run code which comes back here.
std::unordered_map<hvd_handle, Entry>& pending() {
  static auto* table = new std::unordered_map<hvd_handle, Entry>;  // outlives the interpreter
  return *table;
}

// Those that were pending when Horovod was shut down or this process was forked.
std::unordered_set<hvd_handle>& lost() {
  static auto* handles = new std::unordered_set<hvd_handle>;
  return *handles;
}

// Those whose finish() was interrupted.
std::vector<hvd_handle>& interrupted() {
  static auto* handles = new std::vector<hvd_handle>;
  return *handles;
}

// How long a waiting thread stays in the runtime before it looks for signals. A shutdown wakes it.
constexpr std::int64_t wait_slice_ms = 200;

bool read_handle(PyObject* number, hvd_handle* handle) {
  *handle = PyLong_AsUnsignedLongLong(number);
  return PyErr_Occurred() == nullptr;
}

enum class Waited {
  succeeded,
  failed,       // with a Python error set
  shut_down,    // the same: this process has shut down meanwhile
  interrupted,  // the same, and the operation goes on in its memory
};

// A Python error that was set, put aside.
class Failure {
 public:
  Failure() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~Failure() {
    for (PyObject* object : {type_, value_, traceback_}) Py_DecRef(object);
  }
  Failure(const Failure&) = delete;
  Failure& operator=(const Failure&) = delete;
  void set_again() {
    PyErr_Restore(type_, value_, traceback_);
    type_ = value_ = traceback_ = nullptr;
  }

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

// Another thread has shut down, or a signal's handler on top of this one. Returns when the engine has let go of all
// tensors: their owners may drop them as soon as they hear of the error.
Waited raise_shut_down() {
  const Session& session = Session::get();
  Py_BEGIN_ALLOW_THREADS;
  while (session.stopping()) {
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  Py_END_ALLOW_THREADS;
  raise(internal_error(), "Horovod has been shut down by this process while it waited for an operation");
  return Waited::shut_down;
}

// Returns when the handle is done, with the GIL released meanwhile.
Waited wait_until_done(hvd_handle handle) {
  Session& session = Session::get();
  const std::uint64_t generation = session.generation();
  if (session.runtime() == nullptr && session.stopping()) return raise_shut_down();
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return Waited::failed;
  hvd_status status = hvd_wait(runtime, handle, 0);
  while (status == HVD_TIMEOUT) {
    {
      Session::Use use(session);
      Py_BEGIN_ALLOW_THREADS;
      status = hvd_wait(runtime, handle, wait_slice_ms);
      Py_END_ALLOW_THREADS;
    }
    if (status != HVD_TIMEOUT) break;
    if (PyErr_CheckSignals() != 0) return Waited::interrupted;
    if (session.runtime() != runtime || session.generation() != generation) return raise_shut_down();
  }
  if (status == HVD_OK) return Waited::succeeded;
  raise_failed();
  return Waited::failed;
}

void release(hvd_handle handle) {
  if (hvd_runtime* runtime = Session::get().runtime()) hvd_release(runtime, handle);
}

// Takes the handle out of the table. False if another thread has done so.
bool forget(hvd_handle handle) {
  return !pending().extract(handle).empty();
}

// Releases the handle and takes it out of the table, when no other thread is in the runtime with it. False if it was
// taken out before.
bool let_go(hvd_handle handle) {
  const auto found = pending().find(handle);
  if (found == pending().end()) return false;
  if (found->second.waiting > 0) return true;
  release(handle);
  return forget(handle);
}

// Waits, takes the handle out of the table and gives what synchronize(number) returns.
Waited collect(PyObject* number, Reference& value) {
  hvd_handle handle = 0;
  if (!read_handle(number, &handle)) return Waited::failed;
  auto found = pending().find(handle);
  if (found == pending().end()) {
    const bool forked = Session::get().forked();
    if (forked ? lost().contains(handle) : lost().erase(handle) != 0) {
      raise(internal_error(), forked
                                  ? "this operation was started by the process that this one was forked from, and can "
                                    "only be waited for there"
                                  : "Horovod has been shut down by this process before it waited for this operation");
      return Waited::failed;
    }
    value = Reference(none());
    return Waited::succeeded;
  }
  // Waiting lets other threads run, and they may take it out.
  Reference result = Reference::to(found->second.result.get());
  value = Reference::to(found->second.value.get());
  ++found->second.waiting;
  const Waited waited = wait_until_done(handle);
  found = pending().find(handle);
  if (found != pending().end()) --found->second.waiting;
  if (waited == Waited::interrupted) return waited;
  if (waited == Waited::succeeded && result)
    value = Reference(PyObject_CallFunctionObjArgs(result.get(), number, value.get(), nullptr));
  if (waited == Waited::succeeded && value) {
    (void)let_go(handle);
    return waited;
  }
  Failure failure;
  if (!let_go(handle) && waited != Waited::shut_down) {
    value = Reference(none());  // another thread has collected it meanwhile
    return Waited::succeeded;
  }
  failure.set_again();
  return Waited::failed;
}

// Whether a function was given one argument, which may be named handle; else an error is set.
bool is_one_handle(Py_ssize_t count, PyObject* names, const char* expected) {
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
  if (count + named == 1 && (named == 0 || PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "handle") == 0))
    return true;
  PyErr_SetString(PyExc_TypeError, expected);
  return false;
}

}  // namespace

bool keep_until_done(PyObject* number, PyObject* value, PyObject* result, PyObject* keep) {
  hvd_handle handle = 0;
  if (!read_handle(number, &handle)) return false;
  Entry entry{Reference::to(value), Reference::to(result == Py_None ? nullptr : result), Reference::to(keep)};
  pending()[handle] = std::move(entry);
  return true;
}

bool has_interrupted() {
  hvd_runtime* runtime = Session::get().runtime();
  std::vector<hvd_handle> done;
  if (runtime != nullptr)
    std::erase_if(interrupted(), [&](hvd_handle handle) {
      if (hvd_poll(runtime, handle) == 0) return false;
      done.push_back(handle);
      return true;
    });
  for (hvd_handle handle : done) {
    hvd_release(runtime, handle);
    forget(handle);  // which may run any code, this function included
  }
  return !interrupted().empty();
}

PyObject* forget_all(PyObject*, PyObject*) {
  interrupted().clear();
  std::unordered_map<hvd_handle, Entry> forgotten;
  forgotten.swap(pending());
  lost().clear();
  for (const auto& [handle, entry] : forgotten) lost().insert(handle);
  return none();
}

// submit(operation, input, output, rows, value, keep, result=None) -> handle
PyObject* submit(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 6 || count > 7 || !is_operation(arguments[0]))
    return raise(PyExc_TypeError, "submit() takes an Operation, input, output, rows, value, keep and perhaps result");
  Reference handle(start_operation(arguments[0], arguments[1], arguments[2], arguments[3]));
  if (!handle || !keep_until_done(handle.get(), arguments[4], count > 6 ? arguments[6] : nullptr, arguments[5]))
    return nullptr;
  return handle.release();
}

// submit_group([(operation, input, output, rows), ...], value, keep, result=None) -> handle
PyObject* submit_group(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 3 || count > 4)
    return raise(PyExc_TypeError, "submit_group() takes a list of members, value, keep and perhaps result");
  Reference handle(start_operations(arguments[0]));
  if (!handle || !keep_until_done(handle.get(), arguments[1], count > 3 ? arguments[3] : nullptr, arguments[2]))
    return nullptr;
  return handle.release();
}

PyObject* poll(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  hvd_handle handle = 0;
  if (!is_one_handle(count, names, "poll() takes one argument: handle") || !read_handle(arguments[0], &handle))
    return nullptr;
  const Session& session = Session::get();
  if (!pending().contains(handle)) return PyBool_FromLong(1);
  // After a shutdown everything is done: with an error, which synchronize() tells.
  if (session.runtime() == nullptr) return PyBool_FromLong(!session.stopping());
  return PyBool_FromLong(hvd_poll(session.runtime(), handle) != 0);
}

PyObject* synchronize(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (!is_one_handle(count, names, "synchronize() takes one argument: handle")) return nullptr;
  Reference value;
  return collect(arguments[0], value) == Waited::succeeded ? value.release() : nullptr;
}

PyObject* finish(PyObject*, PyObject* number) {
  if (!interrupted().empty()) (void)has_interrupted();  // lets go of what is done by now
  Reference value;
  const Waited waited = collect(number, value);
  if (waited == Waited::interrupted) interrupted().push_back(PyLong_AsUnsignedLongLong(number));
  return waited == Waited::succeeded ? value.release() : nullptr;
}

PyObject* synchronize_all(PyObject*, PyObject* handles) {
  Reference numbers(PySequence_List(handles));
  if (!numbers) return nullptr;
  std::unique_ptr<Failure> first;
  for (Py_ssize_t i = 0; i < PyList_Size(numbers.get()); ++i) {
    Reference value;
    const Waited waited = collect(PyList_GetItem(numbers.get(), i), value);
    if (waited == Waited::interrupted) return nullptr;
    if (waited == Waited::succeeded) {
      PyList_SetItem(numbers.get(), i, value.release());
    } else {
      auto failure = std::make_unique<Failure>();  // the others are in flight, too: wait before telling
      if (!first) first = std::move(failure);
    }
  }
  if (!first) return numbers.release();
  first->set_again();
  return nullptr;
}

PyObject* result_shape(PyObject*, PyObject* arguments) {
  unsigned long long handle = 0;
  Py_ssize_t index = 0;
  if (!PyArg_ParseTuple(arguments, "Kn:result_shape", &handle, &index)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return nullptr;
  int dimensions = 0;
  std::int64_t shape[HVD_MAX_DIMENSIONS];
  const hvd_status status = hvd_result_shape(runtime, handle, static_cast<std::size_t>(index), &dimensions, shape);
  if (status != HVD_OK) return raise_refused(status);
  PyObject* result = PyTuple_New(dimensions);
  for (int i = 0; result != nullptr && i < dimensions; ++i) PyTuple_SetItem(result, i, PyLong_FromLongLong(shape[i]));
  return result;
}

PyObject* result_copy(PyObject*, PyObject* arguments) {
  unsigned long long handle = 0, destination = 0;
  Py_ssize_t index = 0, bytes = 0;
  if (!PyArg_ParseTuple(arguments, "KnKn:result_copy", &handle, &index, &destination, &bytes)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return nullptr;
  hvd_status status;
  {
    Session::Use use(Session::get());
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_result_copy(runtime, handle, static_cast<std::size_t>(index), reinterpret_cast<void*>(destination),
                             static_cast<std::size_t>(bytes));
    Py_END_ALLOW_THREADS;
  }
  return status == HVD_OK ? none() : raise_refused(status);
}

}  // namespace hvd::python
