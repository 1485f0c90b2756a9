#pragma once
// The thread by which NodePeers and NetPeers watch their connections.
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/processes/thread.hpp"

namespace hvd::connections {

class Watcher {
 public:
  Status open() {
    poked_ = posix::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return poked_ ? Status() : system_error("cannot watch the connections to other ranks (eventfd)", errno);
  }
  // Starts the thread. It calls `wait` and `work` in turn. `wait` sleeps until something happens or descriptor() is
  // readable. After stop() the thread does not call `work` any more.
  Status start(const char* name, std::function<void()> wait, std::function<void()> work) {
    auto thread = posix::start_thread(name, [this, wait = std::move(wait), work = std::move(work)] {
      for (wait(); !has_to_stop_; wait()) work();
    });
    if (!thread) return std::move(thread.error());
    thread_ = std::move(*thread);
    return {};
  }
  // Waits for the end of the thread. Returns false in a forked child: there is no thread, and a mutex that the thread
  // had locked stays locked. So the child must not destroy what the thread uses.
  bool stop() {
    if (::getpid() != owner_) return false;
    has_to_stop_ = true;
    poke();
    if (thread_.joinable()) thread_.join();
    return true;
  }

  int descriptor() const { return poked_.get(); }
  // Ends a wait. Any thread may call this.
  void poke() const { (void)!::eventfd_write(poked_.get(), 1); }
  void take_pokes() const {
    eventfd_t pokes = 0;
    (void)!::eventfd_read(poked_.get(), &pokes);
  }

 private:
  posix::FileDescriptor poked_;
  std::atomic<bool> has_to_stop_ = false;
  const pid_t owner_ = ::getpid();
  std::thread thread_;
};

}  // namespace hvd::connections
