#include "launcher/options/gpu_libraries.hpp"

#include <dlfcn.h>

#include "native/posix/plugins/shared_library.hpp"

namespace hvd::launcher {
namespace {

// Opens the first library that there is, and asks it for its number by this function. It stays open, since some do not
// survive that they are closed.
int ask_version(const std::vector<std::string>& files, const char* function, std::string& file) {
  for (const std::string& each : files) {
    auto library = posix::SharedLibrary::open(each.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) continue;
    auto tell = reinterpret_cast<int (*)(int*)>(library->symbol(function));
    int number = 0;
    file = library->path();
    return tell != nullptr && tell(&number) == 0 ? number : -1;
  }
  return 0;
}

std::string version_of(int first, int second) {
  return std::to_string(first) + "." + std::to_string(second);
}

constexpr const char* of_unknown_version = "of unknown version";

}  // namespace

FoundLibrary find_gpu_driver(const Environment& environment) {
  FoundLibrary found;
  const int number =
      ask_version({environment.get("HOROVOD_CUDA_DRIVER").value_or("libcuda.so.1")}, "cuDriverGetVersion", found.file);
  if (number != 0) found.version = number < 0 ? of_unknown_version : version_of(number / 1000, number % 1000 / 10);
  return found;
}

FoundLibrary find_nccl(const Environment& environment, const std::vector<std::string>& others) {
  FoundLibrary found;
  std::vector<std::string> files{"libnccl.so.2"};
  files.insert(files.end(), others.begin(), others.end());
  if (auto named = environment.get("HOROVOD_NCCL_LIBRARY"); named && !named->empty()) files = {*named};
  const int number = ask_version(files, "ncclGetVersion", found.file);
  if (number == 0) return found;
  const int base = number >= 10000 ? 10000 : 1000;  // until 2.8 it was counted in another way
  found.version = number < 0 ? of_unknown_version
                             : version_of(number / base, number % base / 100) + "." + std::to_string(number % 100);
  return found;
}

}  // namespace hvd::launcher
