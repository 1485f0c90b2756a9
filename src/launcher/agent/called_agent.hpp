#pragma once
// An agent on a host to which a command leads that carries neither input nor output: pbsdsh, whose tasks have no
// standard input and write into the job's files. So the agent calls back:
//
// 1. horovodrun starts a line to the agent, as it would start ssh. The line listens on TCP, writes where, and a secret,
//    into a file that only this user can read, and lets pbsdsh start the agent with the path of that file.
// 2. The agent's process reads the file, connects, and shows the secret. No command line has it.
// 3. The line removes the file and carries the messages between the connection and its own standard input and output.
//
// The file lies in HOROVOD_SHARED_DIR, or in the home folder, which every host of such a job sees.
#include <chrono>
#include <string>
#include <vector>

namespace hvd::launcher {

// The first argument of the line. Interfaces and ports ("-": any), the host, and the words that start an agent
// (remote_agent_words) follow.
inline constexpr const char* pbsdsh_line_flag = "--as-line-through-pbsdsh";
int run_pbsdsh_line(int count, char** arguments);

// The first argument of the agent's process; the file and the grace follow.
inline constexpr const char* called_agent_flag = "--as-agent-that-calls";
int run_called_agent(const std::string& file, std::chrono::milliseconds grace);

// Returns the number by which pbsdsh knows the host: that of its first line in PBS_NODEFILE; -1: it is not there.
int task_number_of(const std::string& host, const std::string& node_file_text);

}  // namespace hvd::launcher
