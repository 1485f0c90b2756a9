// horovod._core: the C API of horovod.h for Python, in the limited API, so that one build serves every Python from 3.9
// on. Pointers travel as integers (tensor.data_ptr()); no framework is known here.
#include "python/core/python_api.hpp"

#include <cstdlib>
#include <limits>
#include <vector>

#include "python/core/again.hpp"
#include "python/core/errors.hpp"
#include "python/core/handles.hpp"
#include "python/core/operation.hpp"
#include "python/core/session.hpp"

namespace hvd::python {
namespace {

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

PyObject* has_place(PyObject*, PyObject*) {
  return PyBool_FromLong(Session::get().place() != nullptr);
}

PyObject* is_running(PyObject*, PyObject*) {
  hvd_runtime* runtime = Session::get().runtime();
  return PyBool_FromLong(runtime != nullptr && hvd_is_running(runtime) != 0);
}

PyObject* world(PyObject*, PyObject*) {
  const Session::Place* place = place_or_raise();
  if (place == nullptr) return nullptr;
  const hvd_world& found = place->world;
  return Py_BuildValue("(iiiiiiN)", found.rank, found.size, found.local_rank, found.local_size, found.cross_rank,
                       found.cross_size, PyBool_FromLong(found.is_homogeneous));
}

// Python's copy of the environment does not have what the library sets.
PyObject* owner_mark(PyObject*, PyObject*) {
  const char* mark = std::getenv("HOROVOD_OWNER");
  return mark == nullptr ? none() : PyUnicode_FromString(mark);
}

PyObject* mpi_built(PyObject*, PyObject*) {
  return PyBool_FromLong(hvd_mpi_built());
}

PyObject* mpi_thread_level(PyObject*, PyObject*) {
  const Session::Place* place = place_or_raise();
  return place == nullptr ? nullptr : PyLong_FromLong(place->mpi_thread_level);
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
  if (status != HVD_OK) return raise_refused(status);
  if (Session::get().runtime() != runtime) return raise(internal_error(), "Horovod has been shut down meanwhile");
  hvd_shared_hold_t* hold = hvd_shared_hold(runtime, memory);
  PyObject* owner = PyCapsule_New(hold, nullptr, [](PyObject* capsule) {
    hvd_shared_drop(static_cast<hvd_shared_hold_t*>(PyCapsule_GetPointer(capsule, nullptr)));
  });
  if (owner == nullptr) hvd_shared_drop(hold);
  return owner == nullptr ? nullptr : Py_BuildValue("(NN)", PyLong_FromVoidPtr(memory), owner);
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

template <typename Function>
PyCFunction fast(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef functions[] = {
    {"init", init, METH_VARARGS,
     "init(communicator=0, handle_bytes=0, ranks=None): joins the job of all, of an MPI_Comm at an address, or of "
     "ranks "
     "of MPI_COMM_WORLD. ValueError if that fails. Nothing happens if initialised already."},
    {"shutdown", shutdown, METH_NOARGS, "Ends the job's operations on all ranks. Nothing happens if not initialised."},
    {"is_initialized", is_initialized, METH_NOARGS, "Between init() and shutdown() of this process."},
    {"has_place", has_place, METH_NOARGS, "The same, and in children that were forked in between: world() answers."},
    {"is_running", is_running, METH_NOARGS, "is_initialized(), and no other rank has shut down or was lost."},
    {"world", world, METH_NOARGS,
     "(rank, size, local_rank, local_size, cross_rank, cross_size, is_homogeneous). ValueError if not initialised."},
    {"owner_mark", owner_mark, METH_NOARGS, "HOROVOD_OWNER, by which children know that they are no ranks; or None."},
    {"mpi_built", mpi_built, METH_NOARGS, "Is there a plugin for any MPI?"},
    {"mpi_thread_level", mpi_thread_level, METH_NOARGS,
     "The thread level of the MPI that connects the ranks (3: MPI_THREAD_MULTIPLE), -1 without one."},
    {"prepare", prepare, METH_VARARGS,
     "prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, process_set, transient) -> Operation"},
    {"submit", fast(&submit), METH_FASTCALL,
     "submit(operation, input, output, rows, value, keep, result=None) -> handle\n"
     "Starts an operation. synchronize(handle) returns value, or result(handle, value); `keep` lives until then."},
    {"submit_group", fast(&submit_group), METH_FASTCALL,
     "submit_group([(operation, input, output, rows), ...], value, keep, result=None) -> handle\n"
     "The same for several, all or none: they become visible to the other ranks together."},
    {"start_again", fast(&start_again), METH_FASTCALL,
     "start_again(tensor, in_place, name, reduce_op, prescale, postscale, process_set) -> handle\n"
     "Starts the allreduce that was latest under this name again; None if this is another one."},
    {"forget_all", forget_all, METH_NOARGS,
     "Lets go of what was submitted and not synchronised; when nothing is in flight any more."},
    {"start_group_again", fast(&start_group_again), METH_FASTCALL,
     "start_group_again(tuple of tensors, in_place, name, reduce_op, prescale, postscale, process_set) -> handle\n"
     "The same for several that become ready together."},
    {"poll", fast(&poll), METH_FASTCALL | METH_KEYWORDS,
     "poll($module, /, handle)\n--\n\n"
     "Is the operation done? Never blocks. A handle that is not known, or synchronised already, is done."},
    {"synchronize", fast(&synchronize), METH_FASTCALL | METH_KEYWORDS,
     "synchronize($module, /, handle)\n--\n\n"
     "Waits until the operation is done and returns its output; None for a handle that is not known.\n\n"
     "Raises HorovodInternalError if the operation failed."},
    {"finish", finish, METH_O, "synchronize(handle) for who has started it and shows the handle to nobody."},
    {"synchronize_all", synchronize_all, METH_O,
     "synchronize_all($module, handles, /)\n--\n\n"
     "Waits for all of them and returns the list of their outputs, or raises the first failure: after the others are "
     "done, too."},
    {"result_shape", result_shape, METH_VARARGS, "result_shape(handle, index) -> tuple"},
    {"result_copy", result_copy, METH_VARARGS, "result_copy(handle, index, destination, bytes)"},
    {"shared_allocate", shared_allocate, METH_O,
     "shared_allocate(bytes) -> (address, owner): collective. The memory lasts as long as the owner, if need be beyond "
     "the shutdown."},
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
  if (!hvd::python::add_operation_type(module) || !hvd::python::add_known_type(module) ||
      !hvd::python::add_constants(module)) {
    Py_DecRef(module);
    return nullptr;
  }
  return module;
}
