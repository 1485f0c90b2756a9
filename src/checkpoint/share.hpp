#pragma once
// Work on a file or a state that several threads share.
#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

#include "native/posix/processes/thread.hpp"

namespace hvd::checkpoint {

// Calls work() in this thread and in up to `helpers` others, and returns when all calls have returned. If the system
// refuses a thread, the work has fewer threads and takes longer.
template <typename Work>
void share(std::size_t helpers, const char* thread_name, Work&& work) {
  std::vector<std::thread> started;
  while (started.size() < helpers) {
    auto helper = posix::start_thread(thread_name, work);
    if (!helper) break;
    started.push_back(std::move(*helper));
  }
  work();
  for (std::thread& helper : started) helper.join();
}

// Returns how many helpers suit so many items, when each thread should have at least `least_each` of them. There are
// several even on one core, so that a disk has more than one thing to do, and a file system of many servers, too.
inline std::size_t helpers_for(std::size_t items, std::size_t least_each) {
  constexpr std::size_t most_threads = 4;
  return std::clamp<std::size_t>(items / least_each, 1, most_threads) - 1;
}

}  // namespace hvd::checkpoint
