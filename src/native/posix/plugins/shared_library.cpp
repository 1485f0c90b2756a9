#include "native/posix/plugins/shared_library.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <memory>

namespace hvd::posix {

std::string loader_error(const std::string& otherwise) {
  const char* reason = ::dlerror();  // NOLINT(concurrency-mt-unsafe): the C library has one for each thread
  return reason != nullptr ? reason : otherwise;
}

Result<SharedLibrary> SharedLibrary::open(const char* name, int flags) {
  SharedLibrary library;
  library.handle_ = ::dlopen(name, flags);
  if (library.handle_ == nullptr)
    return Error(ErrorCode::unsupported, loader_error(std::string("cannot load ") + name));
  library.path_ = name;
  return library;
}

SharedLibrary& SharedLibrary::operator=(SharedLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(path_, other.path_);
  return *this;
}

SharedLibrary::~SharedLibrary() {
  if (handle_ != nullptr) ::dlclose(handle_);
}

void* SharedLibrary::symbol(const char* name) const noexcept {
  return handle_ == nullptr ? nullptr : ::dlsym(handle_, name);
}

std::string folder_of_code(const void* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  std::string path(info.dli_fname);
  // The entry of the main program is argv[0], which may be a bare name that was found through PATH. /proc/self/exe
  // leads to its file.
  if (path.find('/') == std::string::npos) path = "/proc/self/exe";
  std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  if (real == nullptr) return {};
  path = real.get();
  return path.substr(0, path.rfind('/'));
}

}  // namespace hvd::posix
