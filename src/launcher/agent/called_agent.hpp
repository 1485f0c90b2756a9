#pragma once
// An agent on a host that horovodrun reaches only by a command that does not carry messages. The tasks of pbsdsh have
// no standard input and write into the job's files; srun passes on the output of its tasks line by line. Therefore the
// agent connects back:
//
//  1. horovodrun starts a process, the line, as it would start ssh. The line listens on TCP. It writes its addresses
//     and a secret into a file that only this user can read. It lets that command start the agent with the path of that
//     file.
//  2. The agent reads the file, connects to the line and sends the secret. So the secret is on no command line.
//  3. The line removes the file. Then it carries messages between the connection and its own standard input and output.
//
// The file is in HOROVOD_SHARED_DIR, or in the home folder. Every host of such a job sees this folder.
#include <chrono>
#include <string>
#include <vector>

namespace hvd::launcher {

// The first argument of the line. The next arguments are the interfaces and the ports ("-": any), --max-requeues for
// an agent that stands in for a lost script ("-": its default), the host, and the words that start an agent
// (remote_agent_words).
inline constexpr const char* pbsdsh_line_flag = "--as-line-through-pbsdsh";
int run_pbsdsh_line(int count, char** arguments);
inline constexpr const char* srun_line_flag = "--as-line-through-srun";
int run_srun_line(int count, char** arguments);

// Returns the words of srun that start a command on this host of the job, up to the command. It is a step of its own
// beside others, with all that the job has on that host. The step may lose its host, and a task may fail.
std::vector<std::string> srun_words(const std::string& host);

// The first argument of the agent's process. The next arguments are the file and the grace.
inline constexpr const char* called_agent_flag = "--as-agent-that-calls";
int run_called_agent(const std::string& file, std::chrono::milliseconds grace);

// Returns the number by which pbsdsh knows the host: the position of the host's first line in PBS_NODEFILE. Returns -1
// if the host is not in that file.
int task_number_of(const std::string& host, const std::string& node_file_text);

}  // namespace hvd::launcher
