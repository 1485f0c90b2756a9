// horovod._core: the C API of horovod.h for Python, in the limited API, so that one build serves every Python from 3.9
// on. Pointers travel as integers (tensor.data_ptr()); no framework is known here.
#include "python/core/python_api.hpp"

#include <limits>
#include <vector>

#include "python/core/errors.hpp"
#include "python/core/operation.hpp"
#include "python/core/session.hpp"

namespace hvd::python {
namespace {

// How long a waiting thread stays in the runtime before it looks for Ctrl-C and for a shutdown by another thread.
constexpr std::int64_t wait_slice_ms = 200;

PyObject* none() {
  Py_IncRef(Py_None);
  return Py_None;
}

bool read_handle(PyObject* number, hvd_handle* handle) {
  *handle = PyLong_AsUnsignedLongLong(number);
  return PyErr_Occurred() == nullptr;
}

bool read_ranks(PyObject* list, std::vector<int>* ranks) {
  if (list == nullptr || list == Py_None) return true;
  const Py_ssize_t count = PySequence_Size(list);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_GetItem(list, i);
    if (item == nullptr) return false;
    const long rank = PyLong_AsLong(item);
    Py_DecRef(item);
    if (PyErr_Occurred() != nullptr) return false;
    if (rank < 0 || rank > std::numeric_limits<int>::max()) {
      PyErr_Format(PyExc_ValueError, "init(comm=[...]) takes ranks; found %ld", rank);
      return false;
    }
    ranks->push_back(static_cast<int>(rank));
  }
  return count >= 0;
}

PyObject* init(PyObject*, PyObject* arguments) {
  unsigned long long communicator = 0;
  Py_ssize_t handle_bytes = 0;
  PyObject* list = nullptr;
  if (!PyArg_ParseTuple(arguments, "|KnO:init", &communicator, &handle_bytes, &list)) return nullptr;
  std::vector<int> ranks;
  if (!read_ranks(list, &ranks)) return nullptr;
  hvd_init_options options{};
  options.struct_size = sizeof options;
  options.mpi_comm = reinterpret_cast<const void*>(communicator);
  options.mpi_comm_size = static_cast<std::size_t>(handle_bytes);
  options.ranks = ranks.empty() ? nullptr : ranks.data();
  options.rank_count = ranks.size();
  return Session::get().init(options) ? none() : nullptr;
}
PyObject* shutdown(PyObject*, PyObject*) {
  return Session::get().shutdown() ? none() : nullptr;
}
PyObject* is_initialized(PyObject*, PyObject*) {
  return PyBool_FromLong(Session::get().runtime() != nullptr);
}

PyObject* is_running(PyObject*, PyObject*) {
  hvd_runtime* runtime = Session::get().runtime();
  return PyBool_FromLong(runtime != nullptr && hvd_is_running(runtime) != 0);
}

PyObject* world(PyObject*, PyObject*) {
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  if (runtime == nullptr) return nullptr;
  hvd_world found{};
  found.struct_size = sizeof found;
  const hvd_status status = hvd_get_world(runtime, &found);
  if (status != HVD_OK) return raise_refused(status);
  return Py_BuildValue("(iiiiiiN)", found.rank, found.size, found.local_rank, found.local_size, found.cross_rank,
                       found.cross_size, PyBool_FromLong(found.is_homogeneous));
}

PyObject* mpi_built(PyObject*, PyObject*) {
  return PyBool_FromLong(hvd_mpi_built());
}

PyObject* mpi_thread_level(PyObject*, PyObject*) {
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  return runtime == nullptr ? nullptr : PyLong_FromLong(hvd_mpi_thread_level(runtime));
}

PyObject* poll(PyObject*, PyObject* argument) {
  hvd_handle handle = 0;
  if (!read_handle(argument, &handle)) return nullptr;
  hvd_runtime* runtime = Session::get().runtime();
  // After a shutdown everything is done: with an error, which wait() tells.
  return PyBool_FromLong(runtime == nullptr || hvd_poll(runtime, handle) != 0);
}

// Waits until the handle is done, with the GIL released. False with a Python error set.
bool wait_until_done(hvd_runtime* runtime, hvd_handle handle) {
  Session& session = Session::get();
  Session::Use use(session);
  hvd_status status = hvd_wait(runtime, handle, 0);
  while (status == HVD_TIMEOUT) {
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_wait(runtime, handle, wait_slice_ms);
    Py_END_ALLOW_THREADS;
    if (status != HVD_TIMEOUT) break;
    if (PyErr_CheckSignals() != 0) return false;
    if (session.stopping()) {
      raise(internal_error(), "Horovod has been shut down by another thread of this process while this one waited");
      return false;
    }
  }
  if (status == HVD_OK) return true;
  raise_failed();
  return false;
}

PyObject* wait(PyObject*, PyObject* argument) {
  hvd_handle handle = 0;
  if (!read_handle(argument, &handle)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  return runtime != nullptr && wait_until_done(runtime, handle) ? none() : nullptr;
}

PyObject* finish(PyObject*, PyObject* argument) {
  hvd_handle handle = 0;
  if (!read_handle(argument, &handle)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr || !wait_until_done(runtime, handle)) return nullptr;
  if (Session::get().runtime() == runtime) hvd_release(runtime, handle);
  return none();
}

PyObject* release(PyObject*, PyObject* argument) {
  hvd_handle handle = 0;
  if (!read_handle(argument, &handle)) return nullptr;
  if (hvd_runtime* runtime = Session::get().runtime()) hvd_release(runtime, handle);
  return none();
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

PyObject* shared_allocate(PyObject*, PyObject* argument) {
  const std::size_t bytes = PyLong_AsSize_t(argument);
  if (PyErr_Occurred() != nullptr) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return nullptr;
  void* memory = nullptr;
  hvd_status status;
  {
    Session::Use use(Session::get());
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_shared_allocate(runtime, bytes, &memory);
    Py_END_ALLOW_THREADS;
  }
  return status == HVD_OK ? PyLong_FromVoidPtr(memory) : raise_refused(status);
}

PyObject* shared_free(PyObject*, PyObject* argument) {
  void* memory = PyLong_AsVoidPtr(argument);
  if (memory == nullptr && PyErr_Occurred() != nullptr) return nullptr;
  if (hvd_runtime* runtime = Session::get().runtime()) {
    Session::Use use(Session::get());
    Py_BEGIN_ALLOW_THREADS;
    hvd_shared_free(runtime, memory);
    Py_END_ALLOW_THREADS;
  }
  return none();
}

PyObject* counter(PyObject*, PyObject* arguments) {
  const char* name = nullptr;
  if (!PyArg_ParseTuple(arguments, "s:counter", &name)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  return runtime == nullptr ? nullptr : PyLong_FromLongLong(hvd_counter(runtime, name));
}

void append_knob(void* list, const char* name, const char* kind, const char* default_value, const char* meaning) {
  PyObject* row = Py_BuildValue("(ssss)", name, kind, default_value, meaning);
  if (row == nullptr) return;
  PyList_Append(static_cast<PyObject*>(list), row);
  Py_DecRef(row);
}

PyObject* knobs(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  if (list != nullptr) hvd_visit_knobs(&append_knob, list);
  return list;
}

PyObject* version(PyObject*, PyObject*) {
  return PyUnicode_FromString(hvd_version());
}

PyMethodDef functions[] = {
    {"init", init, METH_VARARGS,
     "init(communicator=0, handle_bytes=0, ranks=None): joins the job of all, of an MPI_Comm at an address, or of "
     "ranks "
     "of MPI_COMM_WORLD. ValueError if that fails. Nothing happens if initialised already."},
    {"shutdown", shutdown, METH_NOARGS, "Ends the job's operations on all ranks. Nothing happens if not initialised."},
    {"is_initialized", is_initialized, METH_NOARGS, "Between init() and shutdown() of this process."},
    {"is_running", is_running, METH_NOARGS, "is_initialized(), and no other rank has shut down or was lost."},
    {"world", world, METH_NOARGS,
     "(rank, size, local_rank, local_size, cross_rank, cross_size, is_homogeneous). ValueError if not initialised."},
    {"mpi_built", mpi_built, METH_NOARGS, "Is there a plugin for any MPI?"},
    {"mpi_thread_level", mpi_thread_level, METH_NOARGS,
     "The thread level of the MPI that connects the ranks (3: MPI_THREAD_MULTIPLE), -1 without one."},
    {"prepare", prepare, METH_VARARGS,
     "prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, process_set, transient) -> Operation"},
    {"start_group", start_group, METH_O,
     "start_group([(operation, input, output, rows), ...]) -> handle: all or none."},
    {"poll", poll, METH_O, "poll(handle) -> bool: done or failed?"},
    {"wait", wait, METH_O, "wait(handle): returns when done, raises HorovodInternalError if it failed."},
    {"finish", finish, METH_O, "finish(handle): wait, then release if it succeeded."},
    {"release", release, METH_O, "release(handle): forgets it and the result that the runtime kept."},
    {"result_shape", result_shape, METH_VARARGS, "result_shape(handle, index) -> tuple"},
    {"result_copy", result_copy, METH_VARARGS, "result_copy(handle, index, destination, bytes)"},
    {"shared_allocate", shared_allocate, METH_O, "shared_allocate(bytes) -> address; collective over the node."},
    {"shared_free", shared_free, METH_O, "shared_free(address)"},
    {"counter", counter, METH_VARARGS, "counter(name) -> int, -1 if there is none of that name."},
    {"knobs", knobs, METH_NOARGS, "[(name, kind, default, meaning), ...] of all HOROVOD_* settings."},
    {"version", version, METH_NOARGS, "The runtime's version."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "horovod._core",
                          "The C API of Horovod for Python.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

bool add_constants(PyObject* module) {
  const struct {
    const char* name;
    int value;
  } constants[] = {{"ALLREDUCE", HVD_ALLREDUCE},
                   {"ALLGATHER", HVD_ALLGATHER},
                   {"BROADCAST", HVD_BROADCAST},
                   {"BARRIER", HVD_BARRIER},
                   {"AVERAGE", HVD_AVERAGE},
                   {"SUM", HVD_SUM},
                   {"MIN", HVD_MIN},
                   {"MAX", HVD_MAX},
                   {"PRODUCT", HVD_PRODUCT},
                   {"BOOL", HVD_BOOL},
                   {"UINT8", HVD_UINT8},
                   {"INT8", HVD_INT8},
                   {"UINT16", HVD_UINT16},
                   {"INT16", HVD_INT16},
                   {"INT32", HVD_INT32},
                   {"INT64", HVD_INT64},
                   {"FLOAT16", HVD_FLOAT16},
                   {"BFLOAT16", HVD_BFLOAT16},
                   {"FLOAT32", HVD_FLOAT32},
                   {"FLOAT64", HVD_FLOAT64}};
  for (const auto& constant : constants) {
    if (PyModule_AddIntConstant(module, constant.name, constant.value) != 0) return false;
  }
  return true;
}

}  // namespace
}  // namespace hvd::python

PyMODINIT_FUNC PyInit__core() {
  PyObject* module = PyModule_Create(&hvd::python::definition);
  if (module == nullptr) return nullptr;
  if (!hvd::python::add_operation_type(module) || !hvd::python::add_constants(module)) {
    Py_DecRef(module);
    return nullptr;
  }
  return module;
}
