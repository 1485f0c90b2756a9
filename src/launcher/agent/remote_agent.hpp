#pragma once
// The agent of another host: what horovodrun starts there through ssh, and how that is asked for.
#include <chrono>
#include <string>
#include <vector>

#include "base/environment.hpp"

namespace hvd::launcher {

// The first argument of the program on the other host; the second is the grace in milliseconds.
inline constexpr const char* remote_agent_flag = "--as-agent-of-a-host";

// What an agent says first on its standard output; of another version it differs after the beginning.
inline constexpr const char* greeting_beginning = "horovodrun's agent, version ";
std::string agent_greeting();

// Serves standard input and output; returns the exit code when nothing is left here. Watches over the agent proper, a
// child: should that be killed, what it had started becomes ours, and is ended.
int run_remote_agent(std::chrono::milliseconds grace);

// For a shell on the other host.
std::string remote_agent_command(const std::string& program, std::chrono::milliseconds grace);

}  // namespace hvd::launcher
