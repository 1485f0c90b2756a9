#pragma once
// The guardian of the ranks on one host. A process of its own session, single-threaded, the parent of the ranks and the
// adopter of all they leave behind: it starts them, relays their output and their ends, and ends them all when
// horovodrun is done or gone, however that happened.
#include <sys/types.h>

#include <chrono>
#include <string>

#include "base/result.hpp"
#include "launcher/messages.hpp"
#include "launcher/rank_process.hpp"

namespace hvd::launcher {

struct AgentSettings {
  std::string session_folder;       // removed when horovodrun is gone; empty: none
  Inheritance inheritance;          // what the ranks shall start with
  std::chrono::milliseconds grace;  // between the first signal and SIGKILL when horovodrun is gone
};

// Serves the stream until it is dismissed, or until the other end is gone and nothing is left to end.
// Call it in the agent's own process. Returns the exit code.
int run_agent(posix::FileDescriptor stream, const AgentSettings& settings);

struct LocalAgent {
  pid_t process = 0;
  Channel channel;
};
// Forks the agent of this host. The caller has a single thread. In the agent this does not return.
Result<LocalAgent> start_local_agent(const AgentSettings& settings);

}  // namespace hvd::launcher
