#pragma once
// Owns an id of HDF5's, and reads what the library says about a failure. Use these only inside a Section.
#include <string>
#include <utility>

#include "base/result.hpp"
#include "native/hdf5/library.hpp"

namespace hvd::hdf5 {

class Handle {
 public:
  Handle() = default;
  Handle(Id id, Outcome (*give_back)(Id)) : id_(id), close_(give_back) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { close(); }

  Id get() const noexcept { return id_; }
  explicit operator bool() const noexcept { return id_ >= 0; }
  // True if the library reports success. It may write a file only at this point.
  bool close() noexcept { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }

 private:
  Id id_ = -1;
  Outcome (*close_)(Id) = nullptr;
};

// Describes the failure of the call that this thread has just made.
Error failure_of(const Library& library, std::string what);

}  // namespace hvd::hdf5
