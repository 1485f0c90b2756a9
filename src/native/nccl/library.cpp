#include "native/nccl/library.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "native/posix/plugins/shared_library.hpp"

namespace hvd::nccl {
namespace {

constexpr const char* usual_name = "libnccl.so.2";
constexpr const char* variable = "HOROVOD_NCCL_LIBRARY";

std::string file_of(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

std::string real_path(const std::string& path) {
  char real[PATH_MAX];
  return ::realpath(path.c_str(), real) != nullptr ? real : path;
}

int collect(dl_phdr_info* object, std::size_t, void* data) {
  auto& list = *static_cast<std::vector<std::string>*>(data);
  const std::string path = object->dlpi_name != nullptr ? object->dlpi_name : "";
  if (!file_of(path).starts_with("libnccl.so")) return 0;
  const auto is_same = [real = real_path(path)](const std::string& other) { return real_path(other) == real; };
  if (std::ranges::none_of(list, is_same)) list.push_back(path);
  return 0;
}

// Where pip puts NCCL for torch: site-packages has both folders, that of this plugin and nvidia/nccl/lib.
std::string of_pypi() {
  std::string folder = posix::folder_of_code(reinterpret_cast<const void*>(&of_pypi));
  while (!folder.empty()) {
    const std::string file = folder + "/nvidia/nccl/lib/" + usual_name;
    if (::access(file.c_str(), R_OK) == 0) return file;
    folder.resize(folder.find_last_of('/') == std::string::npos ? 0 : folder.find_last_of('/'));
  }
  return "";
}

Status check_version(const Library& library) {
  if (library.version >= oldest_version) return {};
  return Error(ErrorCode::unsupported, library.path + " is NCCL " + version_text(library.version) + ", needed is " +
                                           version_text(oldest_version) +
                                           " or later: load a newer module, or pip install nvidia-nccl-cu12");
}

Status find_entry_points(const posix::SharedLibrary& opened, Library& library) {
  std::string missing;
  auto find = [&]<typename F>(F& member, const char* name) {
    member = reinterpret_cast<F>(opened.symbol(name));
    if (member == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
#define HVD_NEEDED(member, name, ...) find(library.member, name);
#define HVD_OPTIONAL(member, name, ...) \
  library.member = reinterpret_cast<decltype(library.member)>(opened.symbol(name));
  HVD_NCCL_ENTRY_POINTS(HVD_NEEDED, HVD_OPTIONAL)
#undef HVD_NEEDED
#undef HVD_OPTIONAL
  find(library.code_text, "ncclGetErrorString");
  find(library.last_error, "ncclGetLastError");
  // An old library lacks functions, too. Its version tells more.
  if (library.get_version != nullptr) {
    if (const Code code = library.get_version(&library.version); code != Code::success)
      return Error(ErrorCode::unsupported, library.path + " is no NCCL that works: asked for its version it answers " +
                                               std::to_string(static_cast<int>(code)));
    HVD_RETURN_IF_ERROR(check_version(library));
  }
  if (missing.empty()) return {};
  return Error(ErrorCode::unsupported, library.path + " is no complete NCCL, it lacks " + missing + ": unset " +
                                           variable + ", or load another");
}

}  // namespace

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> list;
  ::dl_iterate_phdr(&collect, &list);
  return list;
}

Result<Library> load_library(const std::string& name) {
  auto opened = posix::SharedLibrary::open(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!opened)
    return Error(ErrorCode::unsupported, "NCCL was not found: " + opened.error().message + " (" + variable +
                                             " names another file; pip install nvidia-nccl-cu12 brings one)");
  Library library;
  library.path = opened->path();
  HVD_RETURN_IF_ERROR(find_entry_points(*opened, library));
  return library;
}

Result<Library> find_library(const Environment& environment) {
  if (const auto named = environment.get(variable); named && !named->empty()) return load_library(*named);
  const std::vector<std::string> loaded = loaded_libraries();
  if (loaded.size() > 1)
    return Error(ErrorCode::unsupported,
                 "two NCCLs are in this process, " + loaded[0] + " and " + loaded[1] +
                     ": load one alone (see LD_PRELOAD, LD_LIBRARY_PATH, loaded modules, pip list), or name one with " +
                     variable);
  if (loaded.size() == 1) return load_library(loaded.front());
  auto by_loader = load_library(usual_name);
  if (by_loader) return by_loader;
  const std::string pypi = of_pypi();
  return pypi.empty() ? std::move(by_loader) : load_library(pypi);
}

Result<const Library*> open_library(const Environment& environment) {
  static std::mutex mutex;
  static std::optional<Result<Library>> answer;
  std::lock_guard lock(mutex);
  if (!answer) answer = find_library(environment);
  if (!*answer) return answer->error();
  return &**answer;
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

std::string known_fault(int version) {
  if (version >= 22803 && version <= 22808)
    return "NCCL 2.28.3 to 2.28.8 may hang when a job goes on after a failure: take 2.28.9 or later";
  if (version == 22907)
    return "NCCL 2.29.7 ends a job with many process sets on NVSwitch: set NCCL_NVLS_ENABLE=0, or take another version";
  return "";
}

std::string fault_with_stack(int version, bool is_unlimited) {
  if (!is_unlimited || version >= 22800) return "";
  return "with unlimited stacks (ulimit -s unlimited) the threads of NCCL " + version_text(version) +
         " get 2 MB, and may crash: set ulimit -s 8192 in the job script, or take NCCL 2.28.9 or later";
}

std::string known_faults_here(int version) {
  rlimit limit{};
  const bool is_unlimited = ::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
  const std::string of_version = known_fault(version), with_stack = fault_with_stack(version, is_unlimited);
  return of_version + (of_version.empty() || with_stack.empty() ? "" : "; ") + with_stack;
}

Error error_of(const Library& library, Code code, CommunicatorHandle communicator, const std::string& what,
               std::source_location origin) {
  const char* text = library.code_text(code);
  const char* last = library.last_error(communicator);
  std::string message = what + ": " + (text != nullptr ? text : "an unknown error") + " (NCCL " +
                        version_text(library.version) + ", code " + std::to_string(static_cast<int>(code)) + ")";
  if (last != nullptr && *last != '\0') message += ": " + std::string(last);
  if (code == Code::system_error || code == Code::unhandled_cuda_error || code == Code::internal_error)
    message += "; NCCL_DEBUG=WARN shows more";
  Error error(ErrorCode::system, std::move(message), origin);
  if (code == Code::remote_error) {
    error.code = ErrorCode::peer_lost;
    error.is_a_consequence = true;
  }
  return error;
}

}  // namespace hvd::nccl
