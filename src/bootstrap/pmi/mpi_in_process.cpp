#include "bootstrap/pmi/mpi_in_process.hpp"

#include <dlfcn.h>
#include <link.h>

#include <string>
#include <string_view>
#include <vector>

#include "native/posix/shared_library.hpp"

namespace hvd::bootstrap::pmi {
namespace {

// Equal in every MPI.
using Question = int (*)(int*);
using Version = int (*)(char*, int*);

bool says_yes(void* function) {
  int answer = 0;
  return function != nullptr && reinterpret_cast<Question>(function)(&answer) == 0 && answer != 0;
}

// Open MPI asks other servers than those of PMI-1.
bool speaks_pmi(void* version) {
  if (version == nullptr) return true;
  std::string text(8192 + 1, '\0');  // the longest that any of them allows
  int length = 0;
  if (reinterpret_cast<Version>(version)(text.data(), &length) != 0) return true;
  return std::string_view(text).find("Open MPI") == std::string_view::npos;
}

int collect(dl_phdr_info* object, std::size_t, void* data) {
  std::string_view path = object->dlpi_name != nullptr ? object->dlpi_name : "";
  std::string_view file = path.substr(path.find_last_of('/') + 1);
  if (file.starts_with("libmpi")) static_cast<std::vector<std::string>*>(data)->emplace_back(path);
  return 0;
}

}  // namespace

MpiState mpi_in_process() {
  std::vector<std::string> paths;  // first all: a call out of the iteration could deadlock with the loader
  ::dl_iterate_phdr(&collect, &paths);
  MpiState state = MpiState::none;
  auto ask = [&](auto symbol) {
    if (!says_yes(symbol("MPI_Initialized")) || !speaks_pmi(symbol("MPI_Get_library_version"))) return;
    state = says_yes(symbol("MPI_Finalized")) ? MpiState::finalised : MpiState::initialised;
  };
  // Linked into the program itself, or loaded for all to see.
  ask([](const char* name) { return ::dlsym(RTLD_DEFAULT, name); });
  for (const std::string& path : paths) {
    if (state != MpiState::none) break;
    auto library = posix::SharedLibrary::open(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (library) ask([&](const char* name) { return library->symbol(name); });
  }
  return state;
}

}  // namespace hvd::bootstrap::pmi
