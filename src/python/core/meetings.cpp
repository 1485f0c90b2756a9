#include "python/core/meetings.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "api/horovod.h"
#include "python/core/errors.hpp"
#include "python/core/handles.hpp"
#include "python/core/reference.hpp"

namespace hvd::python {
namespace {

constexpr const char* capsules_name = "horovod.meeting";

PyObject* raise_about_meeting(hvd_status status) {
  switch (status) {
    case HVD_INVALID_ARGUMENT: return raise_last(PyExc_ValueError);
    case HVD_TIMEOUT: return raise_last(PyExc_TimeoutError);
    case HVD_OUT_OF_MEMORY: return raise_last(PyExc_MemoryError);
    default: return raise_last(PyExc_ConnectionError);
  }
}

// Calls without the GIL, and returns None or raises.
template <typename Call>
PyObject* none_after(const Call& call) {
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = call();
  Py_END_ALLOW_THREADS;
  return status == HVD_OK ? none() : raise_about_meeting(status);
}

hvd_meeting* meeting_in(PyObject* capsule) {
  return static_cast<hvd_meeting*>(PyCapsule_GetPointer(capsule, capsules_name));
}

PyObject* capsule_of(hvd_meeting* meeting) {
  PyObject* capsule = PyCapsule_New(meeting, capsules_name, [](PyObject* own) {
    hvd_meeting* closed = meeting_in(own);
    Py_BEGIN_ALLOW_THREADS;
    hvd_meeting_close(closed);  // may wait for ranks that are in
    Py_END_ALLOW_THREADS;
  });
  if (capsule == nullptr) hvd_meeting_close(meeting);
  return capsule;
}

// Waits in slices. Returns HVD_SYSTEM_ERROR with a Python error set if a signal handler has raised one.
hvd_status wait_for(hvd_meeting* meeting, const char* key, std::int64_t timeout_ms, std::size_t* bytes) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max<std::int64_t>(timeout_ms, 0));
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    const std::int64_t slice = timeout_ms < 0 ? wait_slice_ms : std::clamp<std::int64_t>(left, 0, wait_slice_ms);
    hvd_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_meeting_wait(meeting, key, slice, bytes);
    Py_END_ALLOW_THREADS;
    if (status != HVD_TIMEOUT) return status;
    if (PyErr_CheckSignals() != 0) return HVD_SYSTEM_ERROR;
    if (timeout_ms >= 0 && left <= wait_slice_ms) return status;
  }
}

// Enters in slices, so that signals are looked at. Each slice is longer than the one before, since a slow network may
// need some seconds to answer. Returns HVD_SYSTEM_ERROR with a Python error set if a signal handler has raised one.
hvd_status enter(const char* addresses, const char* port, const char* secret, std::int64_t timeout_ms,
                 hvd_meeting** meeting) {
  constexpr std::int64_t first_slice_ms = 1000, longest_slice_ms = 8000;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (std::int64_t longest = first_slice_ms;; longest = std::min(longest * 2, longest_slice_ms)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    hvd_status status;
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_meeting_enter(addresses, port, secret, std::clamp<std::int64_t>(left, 0, longest), meeting);
    Py_END_ALLOW_THREADS;
    if (status != HVD_TIMEOUT) return status;
    if (PyErr_CheckSignals() != 0) return HVD_SYSTEM_ERROR;
    if (left <= longest) return status;
  }
}

}  // namespace

// meeting_open(size, interfaces or None, first port, last port) -> meeting
PyObject* meeting_open(PyObject*, PyObject* arguments) {
  hvd_meeting_options options{};
  options.struct_size = sizeof options;
  if (!PyArg_ParseTuple(arguments, "iz|ii:meeting_open", &options.size, &options.interfaces, &options.first_port,
                        &options.last_port))
    return nullptr;
  hvd_meeting* meeting = nullptr;
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = hvd_meeting_open(&options, &meeting);
  Py_END_ALLOW_THREADS;
  return status == HVD_OK ? capsule_of(meeting) : raise_about_meeting(status);
}

// meeting_enter(addresses, port, secret, milliseconds) -> meeting
PyObject* meeting_enter(PyObject*, PyObject* arguments) {
  const char *addresses = nullptr, *port = nullptr, *secret = nullptr;
  long long timeout_ms = 0;
  if (!PyArg_ParseTuple(arguments, "sssL:meeting_enter", &addresses, &port, &secret, &timeout_ms)) return nullptr;
  hvd_meeting* meeting = nullptr;
  constexpr long long most_ms = 1000LL * 3600 * 24 * 365;  // with it the clock cannot overflow
  const hvd_status status = enter(addresses, port, secret, std::clamp(timeout_ms, 0LL, most_ms), &meeting);
  if (PyErr_Occurred() != nullptr) return nullptr;
  return status == HVD_OK ? capsule_of(meeting) : raise_about_meeting(status);
}

// meeting_variables(meeting, rank) -> dict
PyObject* meeting_variables(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  int rank = 0;
  if (!PyArg_ParseTuple(arguments, "Oi:meeting_variables", &capsule, &rank)) return nullptr;
  hvd_meeting* meeting = meeting_in(capsule);
  if (meeting == nullptr) return nullptr;
  Reference variables(PyDict_New());
  if (!variables) return nullptr;
  const auto add = [](void* context, const char* name, const char* value) {
    if (PyErr_Occurred() != nullptr) return;
    const Reference text(PyUnicode_FromString(value));
    if (text) PyDict_SetItemString(static_cast<PyObject*>(context), name, text.get());
  };
  const hvd_status status = hvd_meeting_variables(meeting, rank, add, variables.get());
  if (status != HVD_OK) return raise_about_meeting(status);
  return PyErr_Occurred() != nullptr ? nullptr : variables.release();
}

// meeting_rank_ended(meeting, rank, how)
PyObject* meeting_rank_ended(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  int rank = 0;
  const char* how = nullptr;
  if (!PyArg_ParseTuple(arguments, "Ois:meeting_rank_ended", &capsule, &rank, &how)) return nullptr;
  hvd_meeting* meeting = meeting_in(capsule);
  if (meeting == nullptr) return nullptr;
  return none_after([&] { return hvd_meeting_rank_ended(meeting, rank, how); });
}

// meeting_put(meeting, key, bytes)
PyObject* meeting_put(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char *key = nullptr, *data = nullptr;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTuple(arguments, "Osy#:meeting_put", &capsule, &key, &data, &size)) return nullptr;
  hvd_meeting* meeting = meeting_in(capsule);
  if (meeting == nullptr) return nullptr;
  return none_after([&] { return hvd_meeting_put(meeting, key, data, static_cast<std::size_t>(size)); });
}

// meeting_put_from(meeting, key, address, bytes)
PyObject* meeting_put_from(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* key = nullptr;
  unsigned long long address = 0, bytes = 0;
  if (!PyArg_ParseTuple(arguments, "OsKK:meeting_put_from", &capsule, &key, &address, &bytes)) return nullptr;
  hvd_meeting* meeting = meeting_in(capsule);
  if (meeting == nullptr) return nullptr;
  return none_after([&] { return hvd_meeting_put(meeting, key, reinterpret_cast<const void*>(address), bytes); });
}

// meeting_get_into(meeting, key, address, bytes, forget)
PyObject* meeting_get_into(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* key = nullptr;
  unsigned long long address = 0, bytes = 0;
  int forget = 0;
  if (!PyArg_ParseTuple(arguments, "OsKKp:meeting_get_into", &capsule, &key, &address, &bytes, &forget)) return nullptr;
  hvd_meeting* meeting = meeting_in(capsule);
  if (meeting == nullptr) return nullptr;
  return none_after([&] { return hvd_meeting_get(meeting, key, reinterpret_cast<void*>(address), bytes, forget); });
}

// meeting_get(meeting, key, milliseconds, forget) -> bytes
PyObject* meeting_get(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* key = nullptr;
  long long timeout_ms = 0;
  int forget = 0;
  if (!PyArg_ParseTuple(arguments, "OsLp:meeting_get", &capsule, &key, &timeout_ms, &forget)) return nullptr;
  hvd_meeting* meeting = meeting_in(capsule);
  if (meeting == nullptr) return nullptr;
  std::size_t bytes = 0;
  hvd_status status = wait_for(meeting, key, timeout_ms, &bytes);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (status != HVD_OK) return raise_about_meeting(status);
  Reference value(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
  if (!value) return nullptr;
  char* data = PyBytes_AsString(value.get());
  Py_BEGIN_ALLOW_THREADS;
  status = hvd_meeting_get(meeting, key, data, bytes, forget);
  Py_END_ALLOW_THREADS;
  return status == HVD_OK ? value.release() : raise_about_meeting(status);
}

}  // namespace hvd::python
