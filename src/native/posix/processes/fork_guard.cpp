#include "native/posix/processes/fork_guard.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace hvd::posix {
namespace {

// The process has one list, because pthread_atfork() has no context and cannot be undone. The list is never destroyed,
// because a fork may come while the process exits.
struct Withheld {
  std::mutex mutex;
  std::vector<int> descriptors;
};

Withheld& withheld() {
  static Withheld* list = [] {
    auto* made = new Withheld;
    ::pthread_atfork([] { withheld().mutex.lock(); }, [] { withheld().mutex.unlock(); },
                     [] {
                       Withheld& mine = withheld();
                       int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
                       for (int descriptor : mine.descriptors) {
                         if (nothing < 0 || ::dup3(nothing, descriptor, O_CLOEXEC) < 0) ::close(descriptor);
                       }
                       if (nothing >= 0) ::close(nothing);
                       mine.descriptors.clear();
                       mine.mutex.unlock();
                     });
    return made;
  }();
  return *list;
}

}  // namespace

void withhold_from_children(int descriptor) {
  Withheld& list = withheld();
  std::lock_guard lock(list.mutex);
  list.descriptors.push_back(descriptor);
}

void stop_withholding(int descriptor) {
  Withheld& list = withheld();
  std::lock_guard lock(list.mutex);
  auto found = std::find(list.descriptors.begin(), list.descriptors.end(), descriptor);
  if (found != list.descriptors.end()) list.descriptors.erase(found);
}

}  // namespace hvd::posix
