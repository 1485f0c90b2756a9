#pragma once
// Threads of ours inside the user's program.
#include <functional>
#include <thread>

#include "base/result.hpp"

namespace hvd::posix {

// Runs `body` on a thread that handles no signal, because signals belong to the program. Only a fault of the thread
// itself reaches the program's handler, which can tell where it happened (as Python's faulthandler does). `name` is
// the name that debuggers show, at most 15 letters. Fails if no thread can be made (ulimit -u), or if there is no
// address space for its stack (ulimit -v).
Result<std::thread> start_thread(const char* name, std::function<void()> body);

}  // namespace hvd::posix
