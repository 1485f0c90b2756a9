#pragma once
// The agent of another host: the program that horovodrun starts there through ssh, and the command for that.
#include <chrono>
#include <string>
#include <vector>

#include "base/settings/environment.hpp"

namespace hvd::launcher {

// The first argument of the agent's program on the other host; the second argument is the grace in milliseconds.
inline constexpr const char* remote_agent_flag = "--as-agent-of-a-host";

// An agent writes this greeting first to its standard output. The greeting of another version has the same beginning
// and another end.
inline constexpr const char* greeting_beginning = "horovodrun's agent, version ";
std::string agent_greeting();

// Serves standard input and output, and returns the exit code when nothing is left on this host. The agent itself is a
// child of this process. If the agent is killed, this process adopts what the agent had started, and ends it.
int run_remote_agent(std::chrono::milliseconds grace);

// Returns the command for a shell on the other host.
std::string remote_agent_command(const std::string& program, std::chrono::milliseconds grace);
// Returns the same command as a list of words.
std::vector<std::string> remote_agent_words(const std::string& program, std::chrono::milliseconds grace);

}  // namespace hvd::launcher
