// Starts one rank for each host of a list, and serves the store where the ranks meet. AGENT is the stand-in for ssh.
// rendezvous_launcher AGENT HOST,HOST… PROGRAM ARGUMENT…
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/settings/environment.hpp"
#include "bootstrap/store/tcp_server.hpp"

namespace {

using namespace hvd;
using namespace hvd::bootstrap;

std::string quoted(const std::string& word) {
  std::string result = "'";
  for (char letter : word) result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return result + "'";
}

// A command for the shell that the agent starts. It sets the rank's variables, because the agent hands on none.
std::string command_line(const TcpStoreServer& store, int rank, int size, char** program) {
  auto variables = store.variables();
  variables.emplace_back("HOROVOD_RANK", std::to_string(rank));
  variables.emplace_back("HOROVOD_SIZE", std::to_string(size));
  for (const char* name : {"HOROVOD_PLUGIN_PATH", "HVD_BOOTSTRAP", "HVD_HOSTS"})
    if (const char* value = std::getenv(name)) variables.emplace_back(name, value);
  std::string command = "env";
  for (const auto& [name, value] : variables) command += " " + name + "=" + quoted(value);
  for (char** word = program; *word != nullptr; ++word) command += " " + quoted(*word);
  return command;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) return 2;
  std::vector<std::string> hosts;
  std::string list = arguments[2];
  for (std::size_t at = 0; at < list.size();) {
    std::size_t end = std::min(list.find(',', at), list.size());
    hosts.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  TcpStoreServer::Options options;
  options.job = "rendezvous-" + std::to_string(::getpid());
  options.size = static_cast<int>(hosts.size());
  options.secret = "only for this test " + std::to_string(::getpid());
  auto store = TcpStoreServer::open(std::move(options));
  if (!store) {
    std::fprintf(stderr, "%s\n", store.error().message.c_str());
    return 1;
  }
  std::map<pid_t, int> ranks;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    std::string command = command_line(**store, rank, static_cast<int>(hosts.size()), arguments + 3);
    pid_t child = ::fork();
    if (child == 0) {
      ::execl(arguments[1], arguments[1], hosts[static_cast<std::size_t>(rank)].c_str(), command.c_str(), nullptr);
      ::_exit(127);
    }
    ranks[child] = rank;
  }
  int result = 0;
  while (!ranks.empty()) {
    pollfd entry{(*store)->descriptor(), POLLIN, 0};
    ::poll(&entry, 1, 20);
    (*store)->serve();
    int status = 0;
    for (pid_t ended = ::waitpid(-1, &status, WNOHANG); ended > 0; ended = ::waitpid(-1, &status, WNOHANG)) {
      if (status != 0) result = 1;
      (*store)->rank_ended(Rank{ranks[ended]}, "ended");
      ranks.erase(ended);
    }
  }
  return result;
}
