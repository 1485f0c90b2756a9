#include "python/core/tensor.hpp"

namespace hvd::python {

// DLPack's "C exchange API": the layout is fixed for the major version.
struct DlpackExchange {
  std::uint32_t major, minor;
  void* previous;
  void* allocate;
  void* export_owned;
  void* import;
  int (*read)(void* object, DlpackTensor* tensor);  // returns -1 with a Python error set on failure; the object keeps
                                                    // its tensor; no device is synchronised
  void* stream;
};

namespace {

const DlpackExchange* exchange_of(PyObject* type) {
  Reference capsule(PyObject_GetAttrString(type, "__dlpack_c_exchange_api__"));
  const DlpackExchange* found = nullptr;
  if (capsule) found = static_cast<const DlpackExchange*>(PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"));
  if (found == nullptr) PyErr_Clear();  // the table of this framework has another version
  return found != nullptr && found->major == 1 ? found : nullptr;
}

// True if object.name(), or object.name if that is no function, is `expected` or equal to it. A Python error stays set.
bool answers(PyObject* object, const char* name, PyObject* expected) {
  Reference said(PyObject_CallMethod(object, name, nullptr));
  return said && PyObject_RichCompareBool(said.get(), expected, Py_EQ) == 1;
}
bool has(PyObject* object, const char* name, PyObject* expected) {
  Reference found(PyObject_GetAttrString(object, name));
  return found && PyObject_RichCompareBool(found.get(), expected, Py_EQ) == 1;
}

}  // namespace

bool TensorLikeness::learn(PyObject* tensor) {
  type_ = Reference::to(reinterpret_cast<PyObject*>(Py_TYPE(tensor)));
  dtype_ = Reference(PyObject_GetAttrString(tensor, "dtype"));
  shape_ = Reference(PyObject_GetAttrString(tensor, "shape"));
  device_ = Reference(PyObject_GetAttrString(tensor, "device"));
  if (!dtype_ || !shape_ || !device_) return false;
  is_neg_ = Reference(PyObject_GetAttrString(type_.get(), "is_neg"));
  if (!is_neg_) PyErr_Clear();
  const Py_ssize_t dimensions = PyTuple_Size(shape_.get());
  if (dimensions < 0) return false;
  extents_.resize(static_cast<std::size_t>(dimensions));
  strides_.resize(extents_.size());
  for (std::size_t i = extents_.size(); i-- > 0;) {
    extents_[i] = PyLong_AsLongLong(PyTuple_GetItem(shape_.get(), static_cast<Py_ssize_t>(i)));
    if (PyErr_Occurred() != nullptr) return false;
    strides_[i] = count_;
    count_ *= extents_[i];
  }
  dlpack_ = exchange_of(type_.get());
  if (dlpack_ == nullptr) return true;
  DlpackTensor read{};
  if (dlpack_->read(tensor, &read) == 0) {
    dlpack_type_ = read.type;
    device_type_ = read.device_type;
    device_id_ = read.device_id;
  } else {
    PyErr_Clear();
    dlpack_ = nullptr;
  }
  return true;
}

bool TensorLikeness::matches(PyObject* tensor, void** data) const {
  return reinterpret_cast<PyObject*>(Py_TYPE(tensor)) == type_.get() && matches_made(tensor, data);
}

bool TensorLikeness::matches_made(PyObject* tensor, void** data) const {
  bool alike = dlpack_ != nullptr ? matches_by_dlpack(tensor, data) : matches_by_asking(tensor, data);
  if (alike && count_ == 1 && is_neg_) {
    // A tensor can be a view of negated memory, for example x.conj().imag. Such a view has strides of two elements, so
    // it is dense only if it has a single element. This check costs as much time as all the others together, so it is
    // made only for tensors of one element.
    Reference negative(PyObject_CallFunctionObjArgs(is_neg_.get(), tensor, nullptr));
    alike = negative.get() == Py_False;
  }
  if (!alike) PyErr_Clear();
  return alike && (*data != nullptr || count_ == 0);
}

bool TensorLikeness::matches_by_dlpack(PyObject* tensor, void** data) const {
  DlpackTensor read{};
  if (dlpack_->read(tensor, &read) != 0 || read.device_type != device_type_ || read.device_id != device_id_ ||
      read.type != dlpack_type_ || read.byte_offset != 0 ||
      static_cast<std::size_t>(read.dimensions) != extents_.size())
    return false;
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    if (read.shape[i] != extents_[i]) return false;
    // Frameworks ignore the stride of a dimension with at most one element. So does this comparison.
    if (read.strides != nullptr && read.strides[i] != strides_[i] && extents_[i] != 1 && count_ > 0) return false;
  }
  *data = read.data;
  return true;
}

bool TensorLikeness::matches_by_asking(PyObject* tensor, void** data) const {
  if (!has(tensor, "dtype", dtype_.get()) || !has(tensor, "shape", shape_.get()) ||
      !has(tensor, "device", device_.get()) || !answers(tensor, "is_contiguous", Py_True))
    return false;
  Reference address(PyObject_CallMethod(tensor, "data_ptr", nullptr));
  if (!address) return false;
  *data = PyLong_AsVoidPtr(address.get());
  return PyErr_Occurred() == nullptr;
}

}  // namespace hvd::python
