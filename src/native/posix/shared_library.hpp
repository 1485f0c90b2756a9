#pragma once
// Owner of a shared object opened at run time.
#include <string>
#include <utility>

#include "base/result.hpp"

namespace hvd::posix {

class SharedLibrary {
 public:
  // `name` is a path, or a soname for the loader's own search. `flags` are dlopen's. The error holds the loader's
  // words.
  static Result<SharedLibrary> open(const char* name, int flags);

  SharedLibrary() = default;
  SharedLibrary(SharedLibrary&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), path_(std::move(other.path_)) {}
  SharedLibrary& operator=(SharedLibrary&& other) noexcept;
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;
  ~SharedLibrary();

  // Null if the object does not define it.
  void* symbol(const char* name) const noexcept;
  const std::string& path() const noexcept { return path_; }

 private:
  void* handle_ = nullptr;
  std::string path_;
};

// What the loader said of this thread's last call that failed; `otherwise` if it said nothing.
std::string loader_error(const std::string& otherwise);

// The folder of the executable or shared object that contains a piece of code or data; empty if that is unknown.
std::string folder_of_code(const void* address);

}  // namespace hvd::posix
