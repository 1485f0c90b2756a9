#pragma once
// The scheduler's own commands that start an agent of ours on another host of the job without ssh. What such a command
// starts belongs to the job, so the scheduler counts it and ends it.
#include <optional>
#include <string>
#include <vector>

#include "base/settings/environment.hpp"
#include "launcher/targets/job_around.hpp"

namespace hvd::launcher {

struct RemoteStarter {
  std::string program;  // the scheduler's command
  // The words up to the host's name. After the name come the words of the command, and no shell reads them.
  std::vector<std::string> words;
  bool carries_messages = true;  // false if a line carries them (agent/called_agent.hpp)
};
// Returns nullopt if the job's scheduler has no such command, or if the command is not along PATH.
std::optional<RemoteStarter> remote_starter(const JobAround& around, const Environment& environment);

}  // namespace hvd::launcher
