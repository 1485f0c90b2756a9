#pragma once
// Owns a shared object that was opened at run time.
#include <string>
#include <utility>

#include "base/result.hpp"

namespace hvd::posix {

class SharedLibrary {
 public:
  // `name` is a path, or a soname that the loader searches for. `flags` are those of dlopen. The error contains the
  // loader's text.
  static Result<SharedLibrary> open(const char* name, int flags);

  SharedLibrary() = default;
  SharedLibrary(SharedLibrary&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), path_(std::move(other.path_)) {}
  SharedLibrary& operator=(SharedLibrary&& other) noexcept;
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  ~SharedLibrary();

  // Returns null if the object does not define the symbol.
  void* symbol(const char* name) const noexcept;
  const std::string& path() const noexcept { return path_; }

 private:
  void* handle_ = nullptr;
  std::string path_;
};

// Returns the loader's text about this thread's last call that failed; `otherwise` if there is none.
std::string loader_error(const std::string& otherwise);

// Returns the folder of the executable or shared object that contains a piece of code or data; empty if it is unknown.
std::string folder_of_code(const void* address);

}  // namespace hvd::posix
