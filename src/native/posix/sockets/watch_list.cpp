#include "native/posix/sockets/watch_list.hpp"

#include <sys/epoll.h>

#include <cerrno>

namespace hvd::posix {

Result<WatchList> WatchList::open() {
  WatchList list;
  list.epoll_ = FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  if (!list.epoll_) return system_error("cannot watch connections (epoll_create1)", errno);
  return list;
}

Status WatchList::add(int descriptor, std::uint64_t number) {
  return control(EPOLL_CTL_ADD, descriptor, number, false);
}

Status WatchList::change(int descriptor, std::uint64_t number, bool also_writable) {
  return control(EPOLL_CTL_MOD, descriptor, number, also_writable);
}

void WatchList::remove(int descriptor) {
  (void)control(EPOLL_CTL_DEL, descriptor, 0, false);
}

Status WatchList::control(int operation, int descriptor, std::uint64_t number, bool also_writable) {
  epoll_event event{};
  event.events = EPOLLIN | (also_writable ? static_cast<std::uint32_t>(EPOLLOUT) : 0u);
  event.data.u64 = number;
  if (::epoll_ctl(epoll_.get(), operation, descriptor, &event) != 0)
    return system_error("cannot watch a connection (epoll_ctl)", errno);
  return {};
}

}  // namespace hvd::posix
