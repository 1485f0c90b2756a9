#include "native/mpi/device_pointers.hpp"

#include <dlfcn.h>

namespace hvd::mpi {

// Open MPI and MPICH have the first function, MPICH and its relatives the second.
DevicePointers device_pointers(const std::function<void*(const char* name)>& find) {
  if (void* function = find("MPIX_Query_cuda_support")) {
    const bool is_yes = reinterpret_cast<int (*)()>(function)() == 1;
    return {is_yes, std::string("MPIX_Query_cuda_support() says ") + (is_yes ? "yes" : "no")};
  }
  if (void* function = find("MPIX_GPU_query_support")) {
    constexpr int kind_of_cuda = 0, success = 0;
    int is_supported = 0;
    const int code = reinterpret_cast<int (*)(int, int*)>(function)(kind_of_cuda, &is_supported);
    const bool is_yes = code == success && is_supported != 0;
    return {is_yes, std::string("MPIX_GPU_query_support() says ") + (is_yes ? "yes" : "no")};
  }
  return {false, "it has neither MPIX_Query_cuda_support() nor MPIX_GPU_query_support()"};
}

DevicePointers device_pointers_of(const void* function) {
  Dl_info library{};
  void* handle = ::dladdr(function, &library) != 0 && library.dli_fname != nullptr
                     ? ::dlopen(library.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                     : nullptr;
  return device_pointers(
      [handle](const char* name) { return ::dlsym(handle != nullptr ? handle : RTLD_DEFAULT, name); });
}

}  // namespace hvd::mpi
