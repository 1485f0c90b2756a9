#pragma once
// Whether an MPI takes pointers to the memory of GPUs. It is only asked: tensors of GPUs go to MPI through page-locked
// host memory (docs/mpi.md says why).
#include <functional>
#include <string>

namespace hvd::mpi {

struct DevicePointers {
  bool are_taken = false;
  std::string why;  // "MPIX_Query_cuda_support() says yes"
};
// `find` returns the function of this name in the MPI library, null if there is none.
DevicePointers device_pointers(const std::function<void*(const char* name)>& find);
// Asks the MPI library that has this function. MPI has to be initialised.
DevicePointers device_pointers_of(const void* function);

}  // namespace hvd::mpi
