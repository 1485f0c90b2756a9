#pragma once
// The PMIx server of one job on one host, run by the launcher. The class is abstract because its code lies in a plugin
// that the launcher opens at run time; no header of PMIx is needed here.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"

namespace hvd::pmix {

struct ServerOptions {
  std::string job;  // the name space: equal to no other job's on this machine
  int size = 1;     // ranks, all on this host
  std::string host;
  std::string folder;  // for the server's files; exists, and is the caller's to remove
  // A rank asked for the end of the job (PMIx_Abort). Called on a thread of the server.
  std::function<void(Rank, int status, std::string message)> on_abort;
};

// Used by one thread. Its own threads serve the ranks until the process ends; after the destructor they call nothing of
// the caller's. One per process.
class Server {
 public:
  virtual ~Server() = default;
  virtual Status start(ServerOptions options) = 0;
  // What the environment of that rank must hold so that PMIx_Init finds the server.
  virtual Result<std::vector<std::pair<std::string, std::string>>> variables_for(Rank rank) = 0;
};

std::unique_ptr<Server> make_server();

}  // namespace hvd::pmix
