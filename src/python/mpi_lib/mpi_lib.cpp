// horovod.torch.mpi_lib_v2 and horovod.tensorflow.mpi_lib: the C functions that other Python code calls through ctypes.
// Each calls the function of its name in horovod.common.c_functions. ctypes has released the GIL, therefore each takes
// it first.
#include "python/core/python_api.hpp"

#include <cstdint>
#include <initializer_list>

#include "api/horovod.h"

namespace {

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Calls the Python function `name` with the arguments (in Py_BuildValue's format) and returns its result. If it fails,
// prints a message to standard error and returns -1.
template <typename... Arguments>
int ask(const char* name, const char* format, Arguments... arguments) {
  const Gil gil;
  long answer = -1;
  PyObject* module = PyImport_ImportModule("horovod.common.c_functions");
  PyObject* function = module == nullptr ? nullptr : PyObject_GetAttrString(module, name);
  PyObject* values = function == nullptr ? nullptr : Py_BuildValue(format, arguments...);
  PyObject* found = values == nullptr ? nullptr : PyObject_CallObject(function, values);
  if (found != nullptr) answer = PyLong_AsLong(found);
  if (PyErr_Occurred() != nullptr) PyErr_Print();
  for (PyObject* object : {found, values, function, module}) Py_DecRef(object);
  return static_cast<int>(answer);
}
int ask(const char* name) {
  return ask(name, "()");
}

// Pointers are passed as integers; c_functions reads the memory at these addresses.
unsigned long long number(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

extern "C" {

HVD_API bool horovod_init(const int* ranks, int count, const int* set_ranks, const int* set_sizes, int set_count) {
  return ask("init", "(KiKKi)", number(ranks), count, number(set_ranks), number(set_sizes), set_count) == 1;
}
HVD_API bool horovod_init_multi_comm(const void* comms, int count, const int* set_ranks, const int* set_sizes,
                                     int set_count) {
  return ask("init_multi_comm", "(KiKKi)", number(comms), count, number(set_ranks), number(set_sizes), set_count) == 1;
}
// An MPI_Comm is an int or a pointer, depending on the MPI.
HVD_API int horovod_comm_process_set(const void* comm) {
  return ask("comm_process_set", "(K)", number(comm));
}
HVD_API void horovod_shutdown() {
  (void)ask("shutdown");
}
HVD_API int horovod_is_initialized() {
  return ask("is_initialized");
}

HVD_API int horovod_rank() {
  return ask("rank");
}
HVD_API int horovod_size() {
  return ask("size");
}
HVD_API int horovod_local_rank() {
  return ask("local_rank");
}
HVD_API int horovod_local_size() {
  return ask("local_size");
}
HVD_API int horovod_cross_rank() {
  return ask("cross_rank");
}
HVD_API int horovod_cross_size() {
  return ask("cross_size");
}
HVD_API bool horovod_is_homogeneous() {
  return ask("is_homogeneous") == 1;
}

HVD_API int horovod_start_timeline(const char* path, bool mark_cycles) {
  return ask("start_timeline", "(yi)", path, static_cast<int>(mark_cycles));
}
HVD_API int horovod_stop_timeline() {
  return ask("stop_timeline");
}

HVD_API int horovod_mpi_threads_supported() {
  return ask("mpi_threads_supported");
}
HVD_API bool horovod_mpi_enabled() {
  return ask("mpi_enabled") == 1;
}
HVD_API bool horovod_gloo_enabled() {
  return ask("gloo_enabled") == 1;
}
HVD_API bool horovod_mpi_built() {
  return ask("mpi_built") == 1;
}
HVD_API bool horovod_gloo_built() {
  return ask("gloo_built") == 1;
}
HVD_API int horovod_nccl_built() {
  return ask("nccl_built");
}
HVD_API bool horovod_ddl_built() {
  return ask("ddl_built") == 1;
}
HVD_API bool horovod_ccl_built() {
  return ask("ccl_built") == 1;
}
HVD_API bool horovod_cuda_built() {
  return ask("cuda_built") == 1;
}
HVD_API bool horovod_rocm_built() {
  return ask("rocm_built") == 1;
}

HVD_API int horovod_reduce_op_average() {
  return HVD_AVERAGE;
}
HVD_API int horovod_reduce_op_sum() {
  return HVD_SUM;
}
HVD_API int horovod_reduce_op_adasum() {
  return HVD_ADASUM;
}
HVD_API int horovod_reduce_op_min() {
  return HVD_MIN;
}
HVD_API int horovod_reduce_op_max() {
  return HVD_MAX;
}
HVD_API int horovod_reduce_op_product() {
  return HVD_PRODUCT;
}

HVD_API int horovod_add_process_set(const int* ranks, int count) {
  return ask("add_process_set", "(Ki)", number(ranks), count);
}
HVD_API int horovod_remove_process_set(int id) {
  return ask("remove_process_set", "(i)", id);
}
HVD_API int horovod_process_set_rank(int id) {
  return ask("process_set_rank", "(i)", id);
}
HVD_API int horovod_process_set_size(int id) {
  return ask("process_set_size", "(i)", id);
}
HVD_API int horovod_process_set_included(int id) {
  return ask("process_set_included", "(i)", id);
}
HVD_API int horovod_number_of_process_sets() {
  return ask("number_of_process_sets");
}
HVD_API void horovod_process_set_ids(int* ids) {
  (void)ask("process_set_ids", "(K)", number(ids));
}
HVD_API int horovod_process_set_ranks(int id, int* ranks) {
  return ask("process_set_ranks", "(iK)", id, number(ranks));
}

}  // extern "C"

namespace {

PyObject* module_of(const char* name) {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                   name,
                                   "C functions of Horovod, for ctypes.",
                                   -1,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr,
                                   nullptr};
  return PyModule_Create(&definition);
}

}  // namespace

// Each copy of this library is imported under one of these names.
PyMODINIT_FUNC PyInit_mpi_lib_v2() {
  return module_of("horovod.torch.mpi_lib_v2");
}
PyMODINIT_FUNC PyInit_mpi_lib() {
  return module_of("horovod.tensorflow.mpi_lib");
}
