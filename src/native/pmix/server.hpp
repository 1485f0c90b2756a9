#pragma once
// The PMIx server of one job on one host, run by the launcher. The class is abstract because its code is in a plugin
// that the launcher opens at run time. This file needs no header of PMIx.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"

namespace hvd::pmix {

struct ServerOptions {
  std::string job;  // the name space; no other job on this machine has the same
  int size = 1;     // ranks, all on this host
  std::string host;
  std::string folder;  // folder for the server's files; it exists, and the caller removes it
  // Called when a rank asks for the end of the job (PMIx_Abort), on a thread of the server.
  std::function<void(Rank, int status, std::string message)> on_abort;
};

// Used by one thread. Its own threads serve the ranks until the process ends. After the destructor they call none of
// the caller's functions. A process has one server.
class Server {
 public:
  virtual ~Server() = default;
  virtual Status start(ServerOptions options) = 0;
  // Returns the variables that the environment of the rank must have so that PMIx_Init finds the server.
  virtual Result<std::vector<std::pair<std::string, std::string>>> variables_for(Rank rank) = 0;
};

std::unique_ptr<Server> make_server();

}  // namespace hvd::pmix
