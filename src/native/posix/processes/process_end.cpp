#include "native/posix/processes/process_end.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

// Headers of older kernels lack this number. It is the same on all processors that have the call.
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace hvd::posix {

FileDescriptor handle_of_process(pid_t process) noexcept {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
}

bool wait_for_process_end(pid_t process, std::chrono::milliseconds span) noexcept {
  FileDescriptor descriptor = handle_of_process(process);
  if (!descriptor) return errno == ESRCH;
  pollfd polled{descriptor.get(), POLLIN, 0};
  return ::poll(&polled, 1, static_cast<int>(span.count())) == 1;
}

void OrderOfEnds::add(pid_t child) {
  if (ended_.descriptor() < 0) {
    auto opened = WatchList::open();
    if (!opened) return;
    ended_ = std::move(*opened);
  }
  FileDescriptor handle = handle_of_process(child);
  if (handle && ended_.add(handle.get(), static_cast<std::uint64_t>(child))) handles_[child] = std::move(handle);
}

std::optional<pid_t> OrderOfEnds::next() {
  // The kernel lists the handles in the order in which they became readable.
  epoll_event first{};
  if (handles_.empty() || ::epoll_wait(ended_.descriptor(), &first, 1, 0) != 1) return std::nullopt;
  auto child = handles_.extract(static_cast<pid_t>(first.data.u64));
  if (child.empty()) return std::nullopt;
  ended_.remove(child.mapped().get());
  return child.key();
}

}  // namespace hvd::posix
