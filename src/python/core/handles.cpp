#include "python/core/handles.hpp"

#include <time.h>

#include <cstdint>
#include <memory>
#include <string_view>
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

using Number = unsigned long long;
Number numbers = 0;  // the last number that was given out

// One operation that was started: the objects that must live until it is done, and the value that synchronize()
// returns.
struct Entry {
  hvd_handle handle = 0;
  ProgramQueue queue;
  Reference value;
  Reference result;  // a function that makes the value: synchronize() returns result(handle, value); may be null
  Reference keep;
  int waiting = 0;  // the number of threads that are in collect(); the last of them releases the handle
};

// The operations that were started and not yet collected. Move an entry out of the table before it is destroyed: its
// destructor may run Python code that uses the table.
std::unordered_map<Number, Entry>& pending() {
  static auto* table = new std::unordered_map<Number, Entry>;  // never destroyed, so that it outlives the interpreter
  return *table;
}

// The operations that were pending when Horovod was shut down or when this process was forked.
std::unordered_set<Number>& lost() {
  static auto* given = new std::unordered_set<Number>;
  return *given;
}

// The operations whose finish() was interrupted.
std::vector<Number>& interrupted() {
  static auto* given = new std::vector<Number>;
  return *given;
}

// On failure returns false with a Python error set. An integer that cannot be a handle's number is read as 0.
bool read_number(PyObject* object, Number* number) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (value == -1 && PyErr_Occurred() != nullptr) return false;
  *number = overflow != 0 || value < 0 ? 0 : static_cast<Number>(value);
  return true;
}

enum class Waited {
  succeeded,
  failed,       // the wait has failed and has set a Python error
  shut_down,    // the wait has failed with a Python error, because this process has shut Horovod down meanwhile
  interrupted,  // the wait has failed with a Python error; the operation goes on and uses its memory
  refused,      // likewise: its stream cannot wait for the operation now
};

// Takes the Python error that is set and keeps it, to be set again later.
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

// Raises the error of a wait during which another thread, or a signal's handler in this thread, has shut Horovod down.
// Returns only when the engine has let go of all tensors, because their owners may free them when they see the error.
Waited raise_shut_down() {
  const Session& session = Session::get();
  Py_BEGIN_ALLOW_THREADS;
  while (session.stopping()) {
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  Py_END_ALLOW_THREADS;
  raise(internal_error(), "Horovod has been shut down by this process while it waited for an operation", "HVD2107");
  return Waited::shut_down;
}

// Waits without the GIL, but not longer than one slice. Returns HVD_TIMEOUT if the handle is not done.
hvd_status wait_a_slice(Session& session, hvd_handle handle) {
  hvd_runtime* runtime = session.runtime();
  hvd_status status = HVD_OK;
  Session::Use use(session);
  Py_BEGIN_ALLOW_THREADS;
  status = hvd_wait(runtime, handle, wait_slice_ms);
  Py_END_ALLOW_THREADS;
  return status;
}

bool is_told_to_wait_later() {
  return std::string_view(hvd_last_error_id()) == "HVD2104";
}

// Raises the error of a wait. A stream that is being captured could not wait, and the program may wait again later.
Waited raise_not_waited() {
  if (is_told_to_wait_later()) {
    raise_last(PyExc_ValueError);
    return Waited::refused;
  }
  raise_failed();
  return Waited::failed;
}

// Returns when the handle is done. The GIL is released meanwhile.
Waited wait_until_done(hvd_handle handle) {
  Session& session = Session::get();
  const std::uint64_t generation = session.generation();
  if (session.runtime() == nullptr && session.stopping()) return raise_shut_down();
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return Waited::failed;
  hvd_status status = hvd_wait(runtime, handle, 0);
  while (status == HVD_TIMEOUT) {
    status = wait_a_slice(session, handle);
    if (status != HVD_TIMEOUT) break;
    if (PyErr_CheckSignals() != 0) return Waited::interrupted;
    if (session.runtime() != runtime || session.generation() != generation) return raise_shut_down();
  }
  return status == HVD_OK ? Waited::succeeded : raise_not_waited();
}

// The wait has made the stream of the start wait for what the device still does. The stream on which the program goes
// on may be another one.
Waited order_current_stream(hvd_handle handle, const ProgramQueue& started) {
  if (started.ordinal < 0) return Waited::succeeded;
  const ProgramQueue now = current_queue(started.ordinal);
  if (now.stream == nullptr) return Waited::failed;
  if (now.stream == started.stream || hvd_wait_on(Session::get().runtime(), handle, now.stream, -1) == HVD_OK)
    return Waited::succeeded;
  return raise_not_waited();
}

// False if a stream of a done operation cannot wait for it now.
bool are_streams_ordered(hvd_runtime* runtime, const Entry& entry) {
  return entry.queue.ordinal < 0 || hvd_wait(runtime, entry.handle, 0) == HVD_OK || !is_told_to_wait_later();
}

void release(hvd_handle handle) {
  if (hvd_runtime* runtime = Session::get().runtime()) hvd_release(runtime, handle);
}

// Takes the operation with this number out of the table. False if another thread has already done that.
bool forget(Number number) {
  return !pending().extract(number).empty();
}

// Releases the handle and takes it out of the table, unless another thread still waits for it. False if it was already
// taken out.
bool release_operation(Number number) {
  const auto found = pending().find(number);
  if (found == pending().end()) return false;
  if (found->second.waiting > 0) return true;
  release(found->second.handle);
  return forget(number);
}

bool is_done(Number number) {
  const auto found = pending().find(number);
  if (found == pending().end()) return true;
  // After a shutdown every operation is done, with an error. synchronize() raises that error.
  const Session& session = Session::get();
  if (session.runtime() == nullptr) return !session.stopping();
  return hvd_poll(session.runtime(), found->second.handle) != 0;
}

Reference call_result(PyObject* function, hvd_handle handle, PyObject* value) {
  const Reference number(PyLong_FromUnsignedLongLong(handle));
  return Reference(number ? PyObject_CallFunctionObjArgs(function, number.get(), value, nullptr) : nullptr);
}

// Waits for the handle and takes it out of the table. `value` becomes the value that synchronize() returns.
Waited collect(PyObject* object, Reference& value) {
  Number number = 0;
  if (!read_number(object, &number)) return Waited::failed;
  auto found = pending().find(number);
  if (found == pending().end()) {
    const bool forked = Session::get().forked();
    if (forked ? lost().contains(number) : lost().erase(number) != 0) {
      raise(internal_error(), forked
                                  ? "this operation was started by the process that this one was forked from, and can "
                                    "only be waited for there"
                                  : "Horovod has been shut down by this process before it waited for this operation");
      return Waited::failed;
    }
    value = Reference(none());
    return Waited::succeeded;
  }
  // Other threads may run during the wait and may take the entry out of the table: copy what is needed later.
  const hvd_handle handle = found->second.handle;
  const ProgramQueue queue = found->second.queue;
  const std::uint64_t generation = Session::get().generation();
  Reference result = Reference::to(found->second.result.get());
  value = Reference::to(found->second.value.get());
  ++found->second.waiting;
  Waited waited = wait_until_done(handle);
  if (waited == Waited::succeeded) waited = order_current_stream(handle, queue);
  const bool is_same_job = Session::get().generation() == generation;  // a later job gives the same numbers again
  found = is_same_job ? pending().find(number) : pending().end();
  if (found != pending().end()) --found->second.waiting;
  if (waited == Waited::interrupted || waited == Waited::refused) return waited;
  if (waited == Waited::succeeded && result) value = call_result(result.get(), handle, value.get());
  if (waited == Waited::succeeded && value) {
    (void)release_operation(number);
    return waited;
  }
  Failure failure;
  if (is_same_job && !release_operation(number) && waited != Waited::shut_down) {
    value = Reference(none());  // another thread has collected the handle meanwhile
    return Waited::succeeded;
  }
  failure.set_again();
  return Waited::failed;
}

// True if a function was given exactly one argument, either by position or under the name handle. Else an error is set.
bool is_one_handle(Py_ssize_t count, PyObject* names, const char* expected) {
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
  if (count + named == 1 && (named == 0 || PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, 0), "handle") == 0))
    return true;
  PyErr_SetString(PyExc_TypeError, expected);
  return false;
}

}  // namespace

PyObject* keep_until_done(const Started& started, PyObject* value, PyObject* result, PyObject* keep) {
  const Number number = ++numbers;
  Entry entry{started.handle, started.queue, Reference::to(value), Reference::to(result == Py_None ? nullptr : result),
              Reference::to(keep)};
  pending()[number] = std::move(entry);
  if (!lost().empty()) lost().erase(number);  // a number of an earlier job
  return PyLong_FromUnsignedLongLong(number);
}

void skip_number() {
  ++numbers;
}

bool has_interrupted() {
  hvd_runtime* runtime = Session::get().runtime();
  std::vector<Number> done;
  if (runtime != nullptr)
    std::erase_if(interrupted(), [&](Number number) {
      const auto found = pending().find(number);
      // The program's streams wait, too, before its memory is given back on them.
      if (found != pending().end() &&
          (hvd_poll(runtime, found->second.handle) == 0 || !are_streams_ordered(runtime, found->second)))
        return false;
      done.push_back(number);
      return true;
    });
  for (Number number : done) (void)release_operation(number);  // may run any Python code, also has_interrupted() again
  return !interrupted().empty();
}

void order_streams_of_pending(hvd_runtime* runtime) {
  for (const auto& [number, entry] : pending())
    if (entry.queue.ordinal >= 0) (void)hvd_wait(runtime, entry.handle, 0);
}

PyObject* forget_all(PyObject*, PyObject*) {
  interrupted().clear();
  std::unordered_map<Number, Entry> forgotten;
  forgotten.swap(pending());
  lost().clear();
  for (const auto& [number, entry] : forgotten) lost().insert(number);
  numbers = 0;
  return none();
}

PyObject* pending_outputs(PyObject*, PyObject*) {
  Reference table(PyDict_New());
  for (const auto& [number, entry] : pending()) {
    const Reference key(PyLong_FromUnsignedLongLong(number));
    PyObject* output = entry.value ? entry.value.get() : Py_None;
    if (!table || !key || PyDict_SetItem(table.get(), key.get(), output) != 0) return nullptr;
  }
  return table.release();
}

// submit(operation, input, output, rows, value, keep, result=None, splits=None) -> handle
PyObject* submit(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 6 || count > 8 || !is_operation(arguments[0]))
    return raise(PyExc_TypeError,
                 "submit() takes an Operation, input, output, rows, value, keep and perhaps result and splits");
  Started started;
  if (!start_operation({arguments[0], arguments[1], arguments[2], arguments[3], count > 7 ? arguments[7] : nullptr},
                       started))
    return nullptr;
  return keep_until_done(started, arguments[4], count > 6 ? arguments[6] : nullptr, arguments[5]);
}

// submit_group([(operation, input, output, rows), ...], value, keep, result=None) -> handle
PyObject* submit_group(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count < 3 || count > 4)
    return raise(PyExc_TypeError, "submit_group() takes a list of members, value, keep and perhaps result");
  Started started;
  if (!start_operations(arguments[0], started)) return nullptr;
  return keep_until_done(started, arguments[1], count > 3 ? arguments[3] : nullptr, arguments[2]);
}

PyObject* poll(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  Number number = 0;
  if (!is_one_handle(count, names, "poll() takes one argument: handle") || !read_number(arguments[0], &number))
    return nullptr;
  return PyBool_FromLong(is_done(number));
}

PyObject* synchronize(PyObject*, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  if (!is_one_handle(count, names, "synchronize() takes one argument: handle")) return nullptr;
  Reference value;
  return collect(arguments[0], value) == Waited::succeeded ? value.release() : nullptr;
}

PyObject* finish(PyObject*, PyObject* number) {
  if (!interrupted().empty()) (void)has_interrupted();  // releases the operations that are done by now
  Reference value;
  const Waited waited = collect(number, value);
  if (waited == Waited::interrupted || waited == Waited::refused)
    interrupted().push_back(PyLong_AsUnsignedLongLong(number));
  return waited == Waited::succeeded ? value.release() : nullptr;
}

PyObject* synchronize_all(PyObject*, PyObject* handles) {
  Reference numbers(PySequence_List(handles));
  if (!numbers) return nullptr;
  std::unique_ptr<Failure> first;
  for (Py_ssize_t i = 0; i < PyList_Size(numbers.get()); ++i) {
    Reference value;
    const Waited waited = collect(PyList_GetItem(numbers.get(), i), value);
    if (waited == Waited::interrupted || waited == Waited::refused) return nullptr;
    if (waited == Waited::succeeded) {
      PyList_SetItem(numbers.get(), i, value.release());
    } else {
      auto failure = std::make_unique<Failure>();  // the handle is not released before all its operations are done
      if (!first) first = std::move(failure);
    }
  }
  if (!first) return numbers.release();
  first->set_again();
  return nullptr;
}

// done_before(handles, other) -> bool
PyObject* done_before(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2) return raise(PyExc_TypeError, "done_before() takes handles and another handle");
  const Reference handles(PySequence_List(arguments[0]));
  Number other = 0;
  if (!handles || !read_number(arguments[1], &other)) return nullptr;
  Session& session = Session::get();
  for (Py_ssize_t i = 0; i < PyList_Size(handles.get()); ++i) {
    Number number = 0;
    if (!read_number(PyList_GetItem(handles.get(), i), &number)) return nullptr;
    while (!is_done(number)) {
      if (is_done(other)) return PyBool_FromLong(0);
      if (PyErr_CheckSignals() != 0) return nullptr;
      const auto found = pending().find(number);  // the handler of a signal may have run
      if (found == pending().end()) break;
      if (session.runtime() == nullptr) {
        (void)raise_shut_down();
        return nullptr;
      }
      (void)wait_a_slice(session, found->second.handle);
    }
  }
  return PyBool_FromLong(1);
}

}  // namespace hvd::python
