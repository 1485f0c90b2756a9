#include "native/posix/processes/thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <optional>
#include <string>
#include <system_error>
#include <utility>

namespace hvd::posix {

Result<std::thread> start_thread(const char* name, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  // The kernel ends a process whose own fault is blocked, before any handler can tell where it happened.
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, fault);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a thread inherits the mask
  std::optional<std::system_error> failure;
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (const std::system_error& caught) {
    failure = caught;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure)
    return system_error(std::string("no thread ") + name +
                            " can be started: too many processes (ulimit -u), or no memory for its stack (ulimit -v)",
                        failure->code().value());
  ::pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace hvd::posix
