#include "python/core/checkpoints.hpp"

#include <deque>
#include <string>
#include <vector>

#include "api/horovod.h"
#include "python/core/errors.hpp"
#include "python/core/reference.hpp"

namespace hvd::python {
namespace {

// Raises OSError, which Python's users expect for files, unless the refusal is the caller's mistake.
PyObject* raise_about_files(hvd_status status) {
  switch (status) {
    case HVD_INVALID_ARGUMENT: return raise_last(PyExc_ValueError);
    case HVD_OUT_OF_MEMORY: return raise_last(PyExc_MemoryError);
    case HVD_UNSUPPORTED: return raise_last(PyExc_NotImplementedError);
    default: return raise_last(PyExc_OSError);
  }
}

// A path of the file system, as text or bytes of any encoding. For PyArg_ParseTuple's "O&".
int path_in(PyObject* given, void* into) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(given, &bytes) == 0) return 0;
  *static_cast<std::string*>(into) = PyBytes_AsString(bytes);
  Py_DecRef(bytes);
  return 1;
}

// The entries of a checkpoint with the memory that they point to, kept as long as the entries are used.
struct Entries {
  std::vector<hvd_checkpoint_entry> all;
  std::deque<std::string> texts;
  std::deque<std::vector<std::int64_t>> shapes;

  const char* keep(PyObject* text) {
    Reference bytes(PyUnicode_AsUTF8String(text));
    char* start = nullptr;
    Py_ssize_t size = 0;
    if (!bytes || PyBytes_AsStringAndSize(bytes.get(), &start, &size) != 0) return nullptr;
    return texts.emplace_back(start, static_cast<std::size_t>(size)).c_str();
  }

  bool keep_shape(PyObject* sequence, hvd_checkpoint_entry& entry) {
    std::vector<std::int64_t>& shape = shapes.emplace_back();
    Py_ssize_t count = PySequence_Size(sequence);
    for (Py_ssize_t i = 0; i < count; ++i) {
      Reference extent(PySequence_GetItem(sequence, i));
      shape.push_back(extent ? PyLong_AsLongLong(extent.get()) : -1);
      if (PyErr_Occurred() != nullptr) return false;
    }
    entry.dimensions = static_cast<int>(shape.size());
    entry.shape = shape.data();
    return count >= 0;
  }

  bool add_tensor(PyObject* value, hvd_checkpoint_entry& entry) {
    PyObject *dtype = nullptr, *shape = nullptr;
    unsigned long long address = 0;
    if (!PyArg_ParseTuple(value, "UOK", &dtype, &shape, &address)) return false;
    entry.dtype = keep(dtype);
    entry.data = reinterpret_cast<const void*>(address);
    return entry.dtype != nullptr && keep_shape(shape, entry);
  }

  // Adds the entry that a tuple (path, kind, type, value) describes.
  bool add(PyObject* tuple) {
    PyObject *path = nullptr, *kind = nullptr, *value = nullptr;
    int type = 0;
    if (!PyArg_ParseTuple(tuple, "UUiO", &path, &kind, &type, &value)) return false;
    hvd_checkpoint_entry entry{};
    entry.struct_size = sizeof entry;
    entry.path = keep(path);
    entry.kind = keep(kind);
    entry.type = static_cast<hvd_entry_type>(type);
    if (entry.path == nullptr || entry.kind == nullptr) return false;
    switch (entry.type) {
      case HVD_ENTRY_GROUP:
      case HVD_ENTRY_NONE: break;
      case HVD_ENTRY_BOOL:
      case HVD_ENTRY_INTEGER: entry.integer = PyLong_AsLongLong(value); break;
      case HVD_ENTRY_NUMBER: entry.number = PyFloat_AsDouble(value); break;
      case HVD_ENTRY_TEXT: entry.text = keep(value); break;
      case HVD_ENTRY_TENSOR:
        if (!add_tensor(value, entry)) return false;
    }
    all.push_back(entry);
    return PyErr_Occurred() == nullptr;
  }

  bool add_all(PyObject* list) {
    Py_ssize_t count = PySequence_Size(list);
    for (Py_ssize_t i = 0; i < count; ++i) {
      Reference tuple(PySequence_GetItem(list, i));
      if (!tuple || !add(tuple.get())) return false;
    }
    return count >= 0;
  }
};

PyObject* value_of(const hvd_checkpoint_entry& entry) {
  switch (entry.type) {
    case HVD_ENTRY_GROUP:
    case HVD_ENTRY_NONE: return none();
    case HVD_ENTRY_BOOL: return PyBool_FromLong(static_cast<long>(entry.integer));
    case HVD_ENTRY_INTEGER: return PyLong_FromLongLong(entry.integer);
    case HVD_ENTRY_NUMBER: return PyFloat_FromDouble(entry.number);
    case HVD_ENTRY_TEXT: return PyUnicode_FromString(entry.text);
    case HVD_ENTRY_TENSOR: {
      Reference shape(PyTuple_New(entry.dimensions));
      if (!shape) return nullptr;
      for (int i = 0; i < entry.dimensions; ++i)
        if (PyTuple_SetItem(shape.get(), i, PyLong_FromLongLong(entry.shape[i])) != 0) return nullptr;
      return Py_BuildValue("(sN)", entry.dtype, shape.release());
    }
  }
  return raise(PyExc_NotImplementedError, (std::string(entry.path) + " is of a type that this package does not know; "
                                                                     "expected the core library of the same version")
                                              .c_str());
}

PyObject* entries_of(hvd_checkpoint* opened, std::size_t count) {
  Reference list(PyList_New(0));
  for (std::size_t i = 0; list && i < count; ++i) {
    hvd_checkpoint_entry entry{};
    entry.struct_size = sizeof entry;
    if (hvd_status status = hvd_checkpoint_get_entry(opened, i, &entry); status != HVD_OK)
      return raise_about_files(status);
    PyObject* value = value_of(entry);
    if (value == nullptr) return nullptr;
    Reference tuple(Py_BuildValue("(ssiN)", entry.path, entry.kind == nullptr ? "" : entry.kind,
                                  static_cast<int>(entry.type), value));
    if (!tuple || PyList_Append(list.get(), tuple.get()) != 0) return nullptr;
  }
  return list.release();
}

constexpr const char* capsule_name = "horovod checkpoint";

void close_capsule(PyObject* capsule) {
  hvd_checkpoint_close(static_cast<hvd_checkpoint*>(PyCapsule_GetPointer(capsule, capsule_name)));
}

}  // namespace

PyObject* checkpoint_save(PyObject*, PyObject* arguments) {
  const char* compression = nullptr;
  std::string path, lease;
  PyObject* list = nullptr;
  long long step = -1;
  int keeps_previous = 1;
  Py_ssize_t keep = 0;
  if (!PyArg_ParseTuple(arguments, "O&OLzpO&n:checkpoint_save", path_in, &path, &list, &step, &compression,
                        &keeps_previous, path_in, &lease, &keep))
    return nullptr;
  Entries entries;
  if (!entries.add_all(list)) return nullptr;
  hvd_checkpoint_options options{};
  options.struct_size = sizeof options;
  options.step = step;
  options.compression = compression;
  options.forgets_previous = keeps_previous != 0 ? 0 : 1;
  options.lease = lease.c_str();
  options.keep = static_cast<std::size_t>(keep);
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = hvd_checkpoint_save(nullptr, path.c_str(), entries.all.data(), entries.all.size(), &options);
  Py_END_ALLOW_THREADS;
  return status == HVD_OK ? none() : raise_about_files(status);
}

PyObject* checkpoint_copy(PyObject*, PyObject* arguments) {
  PyObject* list = nullptr;
  unsigned long long address = 0;
  Py_ssize_t size = 0;
  if (!PyArg_ParseTuple(arguments, "OKn:checkpoint_copy", &list, &address, &size)) return nullptr;
  Entries entries;
  if (!entries.add_all(list)) return nullptr;
  auto bytes = static_cast<std::size_t>(size);
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = hvd_checkpoint_copy(entries.all.data(), entries.all.size(), reinterpret_cast<void*>(address), &bytes);
  Py_END_ALLOW_THREADS;
  return status == HVD_OK ? none() : raise_about_files(status);
}

PyObject* checkpoint_open(PyObject*, PyObject* arguments) {
  std::string path;
  long long before = 0;
  if (!PyArg_ParseTuple(arguments, "O&|L:checkpoint_open", path_in, &path, &before)) return nullptr;
  hvd_checkpoint* opened = nullptr;
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = before == 0 ? hvd_checkpoint_open(nullptr, path.c_str(), &opened)
                       : hvd_checkpoint_open_before(nullptr, path.c_str(), before, &opened);
  Py_END_ALLOW_THREADS;
  if (status != HVD_OK) return raise_about_files(status);
  Reference capsule(PyCapsule_New(opened, capsule_name, close_capsule));
  if (!capsule) return hvd_checkpoint_close(opened), nullptr;
  hvd_checkpoint_info info{};
  info.struct_size = sizeof info;
  if (status = hvd_checkpoint_get_info(opened, &info); status != HVD_OK) return raise_about_files(status);
  PyObject* entries = entries_of(opened, info.entries);
  if (entries == nullptr) return nullptr;
  return Py_BuildValue("(NNNLLL)", capsule.release(), entries, PyUnicode_DecodeFSDefault(info.path),
                       static_cast<long long>(info.step), static_cast<long long>(info.sequence),
                       static_cast<long long>(info.saved_at));
}

PyObject* checkpoint_read(PyObject*, PyObject* arguments) {
  PyObject* capsule = nullptr;
  const char* path = nullptr;
  unsigned long long address = 0;
  Py_ssize_t bytes = 0;
  if (!PyArg_ParseTuple(arguments, "OsKn:checkpoint_read", &capsule, &path, &address, &bytes)) return nullptr;
  auto* opened = static_cast<hvd_checkpoint*>(PyCapsule_GetPointer(capsule, capsule_name));
  if (opened == nullptr) return nullptr;
  hvd_checkpoint_target target{sizeof(hvd_checkpoint_target), path, reinterpret_cast<void*>(address),
                               static_cast<std::size_t>(bytes)};
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = hvd_checkpoint_read(opened, &target, 1);
  Py_END_ALLOW_THREADS;
  return status == HVD_OK ? none() : raise_about_files(status);
}

PyObject* checkpoint_library(PyObject*, PyObject* arguments) {
  const char* otherwise = nullptr;
  if (!PyArg_ParseTuple(arguments, "z:checkpoint_library", &otherwise)) return nullptr;
  hvd_status status = hvd_checkpoint_library(otherwise);
  return status == HVD_OK ? none() : raise_about_files(status);
}

PyObject* checkpoint_claim(PyObject*, PyObject* arguments) {
  std::string path;
  if (!PyArg_ParseTuple(arguments, "O&:checkpoint_claim", path_in, &path)) return nullptr;
  hvd_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = hvd_checkpoint_claim(path.c_str());
  Py_END_ALLOW_THREADS;
  return status == HVD_OK ? none() : raise_about_files(status);
}

PyObject* checkpoint_release(PyObject*, PyObject* arguments) {
  std::string path;
  if (!PyArg_ParseTuple(arguments, "O&:checkpoint_release", path_in, &path)) return nullptr;
  Py_BEGIN_ALLOW_THREADS;
  hvd_checkpoint_release(path.c_str());
  Py_END_ALLOW_THREADS;
  return none();
}

}  // namespace hvd::python
