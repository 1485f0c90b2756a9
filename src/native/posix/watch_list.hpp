#pragma once
// Descriptors that are waited for together, each under a number that its owner chose: an epoll(7), which can itself be
// waited for.
#include <cstdint>

#include "base/result.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::posix {

class WatchList {
 public:
  WatchList() = default;
  static Result<WatchList> open();  // close-on-exec

  // Watches it until it can be read. It leaves the list when every process that has a copy has closed it. A process
  // that was forked meanwhile has one until it executes a program, and may hang there: until then its number may still
  // come up.
  Status add(int descriptor, std::uint64_t number);
  Status change(int descriptor, std::uint64_t number, bool also_writable);
  void remove(int descriptor);                     // at once
  int descriptor() const { return epoll_.get(); }  // for epoll_wait(); the number is data.u64

 private:
  Status control(int operation, int descriptor, std::uint64_t number, bool also_writable);
  FileDescriptor epoll_;
};

}  // namespace hvd::posix
