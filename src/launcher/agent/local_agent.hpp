#pragma once
// The agent of this machine: a fork of horovodrun.
#include <sys/types.h>

#include "launcher/agent/agent.hpp"

namespace hvd::launcher {

struct LocalAgent {
  pid_t process = 0;
  AgentChannel channel;
};
// The agent gets our standard input if one of its ranks is to read it, but not a terminal, which horovodrun alone
// reads (input_relay.hpp). The caller has a single thread. In the agent this does not return.
Result<LocalAgent> start_local_agent(const AgentSettings& settings, bool gets_input);

}  // namespace hvd::launcher
