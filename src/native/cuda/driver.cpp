#include "native/cuda/driver.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "native/cuda/errors.hpp"
#include "native/posix/plugins/shared_library.hpp"

namespace hvd::cuda {
namespace {

constexpr const char* usual_name = "libcuda.so.1";
constexpr const char* variable = "HOROVOD_CUDA_DRIVER";

std::atomic<bool> is_in_forked_child{false};

Status check_version(const Driver& driver) {
  if (driver.version >= oldest_driver) return {};
  return Error(ErrorCode::unsupported,
               driver.path + " is a driver for CUDA " + driver_version_text(driver.version) + ", needed is CUDA " +
                   driver_version_text(oldest_driver) +
                   " or later (driver 520): update NVIDIA's driver, or load the package cuda-compat of the site");
}

// Sets the members of `driver`. Only the OPTIONAL symbols may be missing.
Status find_entry_points(const posix::SharedLibrary& library, Driver& driver) {
  std::string missing;
  auto find = [&]<typename F>(F& member, const char* name, bool is_needed) {
    member = reinterpret_cast<F>(library.symbol(name));
    if (member == nullptr && is_needed) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
#define HVD_NEEDED(member, name, ...) find(driver.member, name, true);
#define HVD_OPTIONAL(member, name, ...) find(driver.member, name, false);
  HVD_CUDA_ENTRY_POINTS(HVD_NEEDED, HVD_OPTIONAL)
#undef HVD_NEEDED
#undef HVD_OPTIONAL
  // An old driver also lacks symbols. An error about its version tells the user more.
  if (driver.driver_version != nullptr && driver.driver_version(&driver.version) == Code::success)
    HVD_RETURN_IF_ERROR(check_version(driver));
  if (missing.empty()) return {};
  return Error(ErrorCode::unsupported, driver.path + " is no complete driver of CUDA, it lacks " + missing +
                                           ": unset " + variable + ", or update NVIDIA's driver");
}

}  // namespace

Result<Driver> load_driver(const std::string& name) {
  auto library = posix::SharedLibrary::open(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library)
    return Error(ErrorCode::unsupported, "NVIDIA's driver was not found: " + library.error().message + " (" + variable +
                                             " names another file)");
  Driver driver;
  driver.path = library->path();
  HVD_RETURN_IF_ERROR(find_entry_points(*library, driver));
  const Code code = driver.init(0);
  if (code == Code::success) return driver;
  return error_of(
      driver, code,
      "NVIDIA's driver " + driver.path + " (CUDA " + driver_version_text(driver.version) + ") does not start");
}

Result<const Driver*> open_driver(const Environment& environment) {
  static std::mutex mutex;
  static std::optional<Result<Driver>> answer;
  if (is_forked())
    return Error(ErrorCode::unsupported,
                 "this process was forked after its parent had used a GPU, and CUDA does not survive a fork: start "
                 "processes with spawn or forkserver, or fork before the first tensor on a GPU");
  std::lock_guard lock(mutex);
  if (!answer) {
    answer = load_driver(environment.get(variable).value_or(usual_name));
    ::pthread_atfork(nullptr, nullptr, [] { is_in_forked_child = true; });
  }
  if (!*answer) return answer->error();
  return &**answer;
}

std::string driver_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

bool is_forked() noexcept {
  return is_in_forked_child.load(std::memory_order_relaxed);
}

}  // namespace hvd::cuda
