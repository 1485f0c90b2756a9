#include "native/posix/process_end.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "native/posix/file_descriptor.hpp"

namespace hvd::posix {

bool wait_for_process_end(pid_t process, std::chrono::milliseconds span) noexcept {
  FileDescriptor descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (!descriptor) return errno == ESRCH;
  pollfd polled{descriptor.get(), POLLIN, 0};
  return ::poll(&polled, 1, static_cast<int>(span.count())) == 1;
}

}  // namespace hvd::posix
