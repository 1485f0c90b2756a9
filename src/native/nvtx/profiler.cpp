#include "native/nvtx/profiler.hpp"

#include <dlfcn.h>

#include <array>
#include <map>
#include <mutex>
#include <string>

#include "native/posix/plugins/shared_library.hpp"

namespace hvd::nvtx {
namespace {

constexpr const char* variable = "NVTX_INJECTION64_PATH";

// A profiler asks for a table of callbacks by this number, and there for the functions of each module.
constexpr std::uint32_t callbacks_table = 1, version_table = 3;
using AnyFunction = void (*)();
constexpr unsigned module_with_domains = 5;
constexpr std::array<unsigned, 7> functions_of_module = {0, 16, 9, 15, 7, 16, 7};  // with number 0, which is none

std::array<AnyFunction, 16> functions{};  // of the module with domains, by number: the profiler writes them
AnyFunction unused = nullptr;             // what we never call

AnyFunction* place_of(unsigned module, unsigned number) {
  if (number == 0) return nullptr;
  return module == module_with_domains ? &functions[number] : &unused;
}

int functions_for_profiler(unsigned module, AnyFunction*** table, unsigned* size) {
  static std::array<std::array<AnyFunction*, 17>, functions_of_module.size()> tables{};
  if (module == 0 || module >= functions_of_module.size()) return 0;
  for (unsigned number = 0; number < functions_of_module[module]; ++number)
    tables[module][number] = place_of(module, number);
  if (table != nullptr) *table = tables[module].data();
  if (size != nullptr) *size = functions_of_module[module];
  return 1;
}

struct Callbacks {
  std::size_t bytes;
  int (*functions)(unsigned module, AnyFunction*** table, unsigned* size);
};
struct Version {
  std::size_t bytes;
  std::uint32_t version, reserved;
  void (*take_version_of_profiler)(std::uint32_t version);
};

const void* table_for_profiler(std::uint32_t number) {
  static const Callbacks callbacks{sizeof(Callbacks), &functions_for_profiler};
  static const Version version{sizeof(Version), 3, 0, [](std::uint32_t) {}};
  if (number == callbacks_table) return &callbacks;
  return number == version_table ? &version : nullptr;
}

template <typename F>
void take(F& function, Function number) {
  function = reinterpret_cast<F>(functions[static_cast<unsigned>(number)]);
}

Result<Profiler> load(const std::string& path) {
  auto library = posix::SharedLibrary::open(path.c_str(), RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) return std::move(library.error());
  using Initialize = int (*)(const void* (*)(std::uint32_t));
  auto initialize = reinterpret_cast<Initialize>(library->symbol("InitializeInjectionNvtx2"));
  if (initialize == nullptr) return Error(ErrorCode::unsupported, path + " has no function InitializeInjectionNvtx2");
  if (initialize(&table_for_profiler) == 0) return Error(ErrorCode::unsupported, path + " does not start");
  Profiler found;
  take(found.range_start, Function::range_start);
  take(found.range_end, Function::range_end);
  take(found.domain_create, Function::domain_create);
  if (found.range_start == nullptr || found.range_end == nullptr || found.domain_create == nullptr)
    return Error(ErrorCode::unsupported, path + " takes no ranges");
  return found;
}

}  // namespace

Result<const Profiler*> profiler(const Environment& environment) {
  static std::mutex mutex;
  static std::map<std::string, Result<Profiler>> answers;
  const std::string path = environment.get(variable).value_or("");
  if (path.empty()) return nullptr;
  std::lock_guard lock(mutex);
  auto answer = answers.find(path);
  if (answer == answers.end()) answer = answers.emplace(path, load(path)).first;
  if (!answer->second)
    return Error(ErrorCode::unsupported, std::string(variable) + ": " + answer->second.error().message);
  return &*answer->second;
}

}  // namespace hvd::nvtx
