#pragma once
// Threads of ours inside somebody else's program.
#include <functional>
#include <thread>

#include "base/result.hpp"

namespace hvd::posix {

// Runs `body` on a thread that handles no signal, since signals are the program's. `name` is what debuggers show, at
// most 15 letters. Fails if there is no process (ulimit -u) or no address space for its stack (ulimit -v).
Result<std::thread> start_thread(const char* name, std::function<void()> body);

}  // namespace hvd::posix
