#pragma once
// A list of descriptors that are waited for together, each under a number that its owner chose. It is an epoll(7), and
// the list itself can be waited for, too.
#include <cstdint>

#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::posix {

class WatchList {
 public:
  WatchList() = default;
  static Result<WatchList> open();  // the descriptor of the list is close-on-exec

  // Watches the descriptor for data to read. It leaves the list when every process that has a copy has closed its copy.
  // A process that was forked meanwhile has a copy until it executes a program, and may hang before that. Until then
  // the descriptor's number may still be reported.
  Status add(int descriptor, std::uint64_t number);
  Status change(int descriptor, std::uint64_t number, bool also_writable);
  void remove(int descriptor);  // removes the descriptor at once
  // Returns the list's descriptor for epoll_wait(); an event's data.u64 has the number.
  int descriptor() const { return epoll_.get(); }

 private:
  Status control(int operation, int descriptor, std::uint64_t number, bool also_writable);
  FileDescriptor epoll_;
};

}  // namespace hvd::posix
