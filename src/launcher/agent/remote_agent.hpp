#pragma once
// The agent of another host: what horovodrun starts there through ssh, and how that is asked for.
#include <chrono>
#include <string>
#include <vector>

#include "base/environment.hpp"

namespace hvd::launcher {

// The first argument of the program on the other host; the second is the grace in milliseconds.
inline constexpr const char* remote_agent_flag = "--as-agent-of-a-host";

// An agent says this first on its standard output. That of another version has the same beginning and another end.
inline constexpr const char* greeting_beginning = "horovodrun's agent, version ";
std::string agent_greeting();

// Serves standard input and output, and returns the exit code when nothing is left on this host. The agent itself is
// a child of this process. If the child is killed, this process adopts what it had started, and ends that.
int run_remote_agent(std::chrono::milliseconds grace);

// The command for a shell on the other host.
std::string remote_agent_command(const std::string& program, std::chrono::milliseconds grace);
// The same as words.
std::vector<std::string> remote_agent_words(const std::string& program, std::chrono::milliseconds grace);

}  // namespace hvd::launcher
