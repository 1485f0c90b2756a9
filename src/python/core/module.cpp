// horovod._core: the C API of horovod.h for Python. It uses the limited API, therefore one build works with every
// Python from 3.9 on. Pointers are passed as integers (tensor.data_ptr()). It knows no framework.
#include "python/core/python_api.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

#include "python/core/again.hpp"
#include "python/core/checkpoints.hpp"
#include "python/core/device_kinds.hpp"
#include "python/core/errors.hpp"
#include "python/core/handles.hpp"
#include "python/core/meetings.hpp"
#include "python/core/operation.hpp"
#include "python/core/process_sets.hpp"
#include "python/core/reference.hpp"
#include "python/core/results.hpp"
#include "python/core/session.hpp"
#include "python/core/streams.hpp"

namespace hvd::python {
namespace {

// The ranks of several process sets, one set after the other.
struct Sets {
  std::vector<int> ranks;
  std::vector<std::size_t> sizes;
  bool read(PyObject* list) {
    const Py_ssize_t count = PySequence_Size(list);
    for (Py_ssize_t i = 0; i < count; ++i) {
      const std::size_t before = ranks.size();
      const Reference set(PySequence_GetItem(list, i));
      if (!set || !read_ranks(set.get(), "a process set", ranks)) return false;
      sizes.push_back(ranks.size() - before);
    }
    return count >= 0;
  }
};

PyObject* init(PyObject*, PyObject* arguments) {
  unsigned long long communicator = 0;
  Py_ssize_t handle_bytes = 0;
  PyObject *list = Py_None, *set_list = Py_None;
  int elastic_cause = HVD_ELASTIC_FIRST;
  long long elastic_step = 0;
  int elastic_keeps = 0;
  if (!PyArg_ParseTuple(arguments, "|KnOOiLp:init", &communicator, &handle_bytes, &list, &set_list, &elastic_cause,
                        &elastic_step, &elastic_keeps))
    return nullptr;
  std::vector<int> ranks;
  Sets sets;
  if (list != Py_None && !read_ranks(list, "init(comm=[...])", ranks)) return nullptr;
  if (set_list != Py_None && !sets.read(set_list)) return nullptr;
  hvd_init_options options{};
  options.struct_size = sizeof options;
  options.mpi_comm = reinterpret_cast<const void*>(communicator);
  options.mpi_comm_size = static_cast<std::size_t>(handle_bytes);
  options.ranks = ranks.empty() ? nullptr : ranks.data();
  options.rank_count = ranks.size();
  options.set_ranks = sets.ranks.data();
  options.set_sizes = sets.sizes.data();
  options.set_count = sets.sizes.size();
  options.elastic_cause = elastic_cause;
  options.elastic_step = elastic_step;
  options.elastic_keeps = elastic_keeps;
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

// elastic_facts() -> (epoch, newcomers), or None in a job whose ranks stay.
PyObject* elastic_facts(PyObject*, PyObject*) {
  hvd_elastic_facts facts{};
  facts.struct_size = sizeof facts;
  (void)hvd_get_elastic_facts(&facts);  // cannot fail for such a struct
  return facts.is_elastic == 0 ? none() : Py_BuildValue("(Ii)", static_cast<unsigned>(facts.epoch), facts.newcomers);
}
// take_hosts_updated() -> (time, change), or None without news.
PyObject* take_hosts_updated(PyObject*, PyObject*) {
  double time = 0;
  const int change = hvd_take_hosts_updated(&time);
  return change == 0 ? none() : Py_BuildValue("(di)", time, change);
}

// Returns the environment variable HOROVOD_OWNER. os.environ does not have it when the C library sets it later.
PyObject* owner_mark(PyObject*, PyObject*) {
  const char* mark = std::getenv("HOROVOD_OWNER");  // NOLINT(concurrency-mt-unsafe): under the GIL
  return mark == nullptr ? none() : PyUnicode_FromString(mark);
}

PyObject* mpi_built(PyObject*, PyObject*) {
  return PyBool_FromLong(hvd_mpi_built());
}

PyObject* mpi_thread_level(PyObject*, PyObject*) {
  const Session::Place* place = place_or_raise();
  return place == nullptr ? nullptr : PyLong_FromLong(place->mpi_thread_level);
}

PyObject* local_device(PyObject*, PyObject*) {
  const Session::Place* place = place_or_raise();
  if (place == nullptr) return nullptr;
  return place->local_device < 0 ? none() : PyLong_FromLong(place->local_device);
}

// device_built(name of a kind of device) -> bool
PyObject* device_built(PyObject*, PyObject* arguments) {
  const char* name = nullptr;
  if (!PyArg_ParseTuple(arguments, "s:device_built", &name)) return nullptr;
  const auto device = device_named(name);
  return PyBool_FromLong(device && hvd_device_built(*device));
}

PyObject* nccl_built(PyObject*, PyObject*) {
  return PyBool_FromLong(hvd_nccl_built());
}

// has_device(process set's id) -> bool
PyObject* has_device(PyObject*, PyObject* argument) {
  const long set = PyLong_AsLong(argument);
  if (PyErr_Occurred() != nullptr) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(internal_error());
  if (runtime == nullptr) return nullptr;
  if (device_of_framework() == HVD_HOST) Py_RETURN_FALSE;
  const int has = hvd_has_device(runtime, device_of_framework(), static_cast<int>(set));
  return has < 0 ? raise_last(PyExc_ValueError) : PyBool_FromLong(has);
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

PyObject* timeline_start(PyObject*, PyObject* arguments) {
  const char* path = nullptr;
  int mark_cycles = 0;
  if (!PyArg_ParseTuple(arguments, "sp:timeline_start", &path, &mark_cycles)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  if (runtime == nullptr) return nullptr;
  hvd_status status;
  {
    Session::Use use(Session::get());
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_timeline_start(runtime, path, mark_cycles);
    Py_END_ALLOW_THREADS;
  }
  return status == HVD_OK ? none() : raise_refused(status);
}

PyObject* timeline_stop(PyObject*, PyObject*) {
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  if (runtime == nullptr) return nullptr;
  hvd_status status;
  {
    Session::Use use(Session::get());
    Py_BEGIN_ALLOW_THREADS;
    status = hvd_timeline_stop(runtime);
    Py_END_ALLOW_THREADS;
  }
  return status == HVD_OK ? none() : raise_refused(status);
}

// should_stop(process set's id) -> bool
PyObject* should_stop(PyObject*, PyObject* argument) {
  const long set = PyLong_AsLong(argument);
  if (PyErr_Occurred() != nullptr) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  if (runtime == nullptr) return nullptr;
  const bool is_known = set >= 0 && set <= std::numeric_limits<int>::max();
  const int stops = hvd_should_stop(runtime, is_known ? static_cast<int>(set) : -1);
  return stops < 0 ? raise_last(PyExc_ValueError) : PyBool_FromLong(stops);
}

PyObject* shelter_child(PyObject*, PyObject* argument) {
  const long parent = PyLong_AsLong(argument);
  if (parent == -1 && PyErr_Occurred() != nullptr) return nullptr;
  if (hvd_shelter_child(static_cast<int>(parent)) != HVD_OK) return raise_last(PyExc_ValueError);
  Py_RETURN_NONE;
}

PyObject* request_stop(PyObject*, PyObject* arguments) {
  const char* reason = nullptr;
  if (!PyArg_ParseTuple(arguments, "z:request_stop", &reason)) return nullptr;
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  if (runtime == nullptr) return nullptr;
  const hvd_status status = hvd_request_stop(runtime, reason);
  return status == HVD_OK ? none() : raise_refused(status);
}

PyObject* stop_reason(PyObject*, PyObject*) {
  hvd_runtime* runtime = runtime_or_raise(PyExc_ValueError);
  if (runtime == nullptr) return nullptr;
  hvd_stop_cause cause = HVD_STOP_PROGRAM;
  const char* reason = hvd_stop_reason(runtime, &cause);
  if (reason == nullptr) return none();
  constexpr std::array causes = {"program", "warned", "terminated", "time"};
  PyObject* text = PyUnicode_DecodeUTF8(reason, static_cast<Py_ssize_t>(std::strlen(reason)), "replace");
  return text == nullptr ? nullptr : Py_BuildValue("(sN)", causes.at(cause), text);
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

void append_setting(void* list, const char* name, const char* value, const char* origin) {
  PyObject* row = Py_BuildValue("(sss)", name, value, origin);
  if (row == nullptr) return;
  PyList_Append(static_cast<PyObject*>(list), row);
  Py_DecRef(row);
}

PyObject* settings(PyObject*, PyObject*) {
  PyObject* list = PyList_New(0);
  if (list == nullptr || hvd_visit_settings(&append_setting, list) == HVD_OK) return list;
  Py_DecRef(list);
  return raise_refused(HVD_INVALID_ARGUMENT);
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
     "init(communicator=0, handle_bytes=0, ranks=None, sets=None): joins the job of all, of an MPI_Comm at an address, "
     "or of ranks of MPI_COMM_WORLD; the process sets, lists of ranks, get the ids 1, 2, ... ValueError if that fails. "
     "Nothing happens if initialised already."},
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
    {"local_device", local_device, METH_NOARGS,
     "The number of the GPU that this rank is meant to use, as programs count them here; None if it sees none."},
    {"prepare", prepare, METH_VARARGS,
     "prepare(name, verb, dtype, shape, reduce_op, prescale, postscale, root, process_set, transient, group, "
     "ordinal=-1) -> Operation\n"
     "ordinal: the number of the GPU that has the tensors, or by which a rank that joins takes part; -1: the host."},
    {"nccl_built", nccl_built, METH_NOARGS, "Is there a plugin for NCCL?"},
    {"device_built", device_built, METH_VARARGS, "device_built(kind) -> bool: is there a plugin for it? cuda, rocm"},
    {"has_device", has_device, METH_O,
     "has_device(process set's id) -> bool: operations of the set take tensors on the framework's devices."},
    {"set_stream_source", set_stream_source, METH_VARARGS,
     "set_stream_source(function, kind): the framework's devices are of this kind (cuda, rocm), and function(ordinal) "
     "-> "
     "the number of the calling thread's current stream there."},
    {"submit", fast(&submit), METH_FASTCALL,
     "submit(operation, input, output, rows, value, keep, result=None, splits=None) -> handle\n"
     "Starts an operation. synchronize(handle) returns value, or result(handle, value); `keep` lives until then."},
    {"submit_group", fast(&submit_group), METH_FASTCALL,
     "submit_group([(operation, input, output, rows), ...], value, keep, result=None) -> handle\n"
     "The same for several, all or none: they become visible to the other ranks together."},
    {"start_again", fast(&start_again), METH_FASTCALL,
     "start_again(tensor, in_place, name, reduce_op, prescale, postscale, process_set) -> handle\n"
     "Starts the allreduce that was latest under this name again; None if this is another one. in_place: False, True "
     "or\n"
     "a function, which is called with the tuple of tensors that are about to change."},
    {"forget_all", forget_all, METH_NOARGS,
     "Lets go of what was submitted and not synchronised; when nothing is in flight any more."},
    {"pending_outputs", pending_outputs, METH_NOARGS,
     "{handle: output} of what was started and not synchronised yet; None where the output is not known before."},
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
    {"finish", finish, METH_O, "synchronize(handle) for code that has started it and shows the handle to nobody."},
    {"synchronize_all", synchronize_all, METH_O,
     "synchronize_all($module, handles, /)\n--\n\n"
     "Waits for all of them and returns the list of their outputs, or raises the first failure: after the others are "
     "done, too."},
    {"done_before", fast(&done_before), METH_FASTCALL,
     "done_before(handles, other) -> bool\n"
     "Waits until all of the handles are done, and returns True, or until only the other one is, and returns False."},
    {"take_result", take_result, METH_VARARGS,
     "take_result(handle, index, dtype) -> a DLPack capsule of the memory itself, once for each result"},
    {"result_bytes", result_bytes, METH_VARARGS, "result_bytes(handle, index) -> a copy of a result of bytes"},
    {"received_splits", received_splits, METH_VARARGS,
     "received_splits(handle, index, size) -> the rows that came from each rank of the set"},
    {"process_set_ids", process_set_ids, METH_NOARGS, "process_set_ids() -> list, ascending"},
    {"process_set", process_set, METH_O,
     "process_set(id) -> (this rank's place, or -1; the set's ranks). ValueError for one that there is not."},
    {"add_process_set", add_process_set, METH_O, "add_process_set(ranks) -> id. Collective over all ranks of the job."},
    {"remove_process_set", remove_process_set, METH_O, "remove_process_set(id). Collective over all ranks of the job."},
    {"elastic_facts", elastic_facts, METH_NOARGS,
     "elastic_facts() -> (epoch, newcomers) of the last start, or None if the ranks of the job stay."},
    {"take_hosts_updated", take_hosts_updated, METH_NOARGS,
     "take_hosts_updated() -> (time, change) that horovodrun has told of hosts, or None."},
    {"should_stop", should_stop, METH_O, "should_stop(process set's id) -> bool: the loop is to be left now."},
    {"shelter_child", shelter_child, METH_O, "shelter_child(parent): stop signals from others do nothing here."},
    {"request_stop", request_stop, METH_VARARGS, "request_stop(reason or None): all ranks are to leave their loops."},
    {"stop_reason", stop_reason, METH_NOARGS, "(cause, text), or None while no rank has asked to stop."},
    {"timeline_start", timeline_start, METH_VARARGS, "timeline_start(path, mark_cycles)"},
    {"timeline_stop", timeline_stop, METH_NOARGS, "Closes the timeline's file, if there is one."},
    {"shared_allocate", shared_allocate, METH_O,
     "shared_allocate(bytes) -> (address, owner): collective. The memory lasts as long as the owner, if need be beyond "
     "the shutdown."},
    {"shared_free", shared_free, METH_O, "shared_free(address)"},
    {"checkpoint_save", checkpoint_save, METH_VARARGS,
     "checkpoint_save(path, [(path, kind, type, value), ...], step, compression, keeps_previous, lease, keep): this "
     "process writes it. The value of a tensor is (dtype, shape, address)."},
    {"checkpoint_copy", checkpoint_copy, METH_VARARGS,
     "checkpoint_copy([(path, kind, type, value), ...], address, bytes): copies tensors to the address, in their "
     "order, each at a multiple of 64 bytes. A tensor without an address gets its place only."},
    {"checkpoint_open", checkpoint_open, METH_VARARGS,
     "checkpoint_open(path[, before]) -> (checkpoint, entries, path, step, sequence, saved_at). A tensor's value is "
     "(dtype, shape). before: only checkpoints of the folder whose sequence is lower."},
    {"checkpoint_read", checkpoint_read, METH_VARARGS, "checkpoint_read(checkpoint, path, address, bytes): a tensor."},
    {"checkpoint_library", checkpoint_library, METH_VARARGS,
     "checkpoint_library(otherwise): opens the HDF5 library; NotImplementedError if there is none."},
    {"checkpoint_claim", checkpoint_claim, METH_VARARGS,
     "checkpoint_claim(path): takes the right to write there, or checks that this process still has it."},
    {"checkpoint_release", checkpoint_release, METH_VARARGS, "checkpoint_release(path): others may write it now."},
    {"meeting_open", meeting_open, METH_VARARGS,
     "meeting_open(size, interfaces or None, first port, last port) -> a meeting in this process, for so many ranks."},
    {"meeting_enter", meeting_enter, METH_VARARGS,
     "meeting_enter(addresses, port, secret, milliseconds) -> a meeting of another process. ConnectionError, "
     "TimeoutError."},
    {"meeting_variables", meeting_variables, METH_VARARGS,
     "meeting_variables(meeting, rank) -> dict of the environment variables of that rank. One is a secret."},
    {"meeting_rank_ended", meeting_rank_ended, METH_VARARGS, "meeting_rank_ended(meeting, rank, how)"},
    {"meeting_put", meeting_put, METH_VARARGS, "meeting_put(meeting, key, bytes)"},
    {"meeting_put_from", meeting_put_from, METH_VARARGS, "meeting_put_from(meeting, key, address, number of bytes)"},
    {"meeting_get_into", meeting_get_into, METH_VARARGS,
     "meeting_get_into(meeting, key, address, number of bytes, forget): a value that is there, of this size."},
    {"meeting_get", meeting_get, METH_VARARGS,
     "meeting_get(meeting, key, milliseconds, forget) -> bytes. Negative: no limit; 0: only looks. TimeoutError."},
    {"counter", counter, METH_VARARGS, "counter(name) -> int, -1 if there is none of that name."},
    {"knobs", knobs, METH_NOARGS, "[(name, kind, default, meaning), ...] of all HOROVOD_* settings."},
    {"settings", settings, METH_NOARGS,
     "[(name, value, origin), ...] of all HOROVOD_* settings of this process; ValueError if a file of them is faulty."},
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
                   {"REDUCESCATTER", HVD_REDUCESCATTER},
                   {"ALLTOALL", HVD_ALLTOALL},
                   {"JOIN", HVD_JOIN},
                   {"AVERAGE", HVD_AVERAGE},
                   {"SUM", HVD_SUM},
                   {"ADASUM", HVD_ADASUM},
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
                   {"FLOAT64", HVD_FLOAT64},
                   {"UINT32", HVD_UINT32},
                   {"UINT64", HVD_UINT64}};
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
