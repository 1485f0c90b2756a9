#pragma once
// Writes the script that a user submits: a template that is filled in with what the site demands and what the user
// asked for.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "jobscripts/site.hpp"

namespace hvd::jobscripts {

// What the user asked for. If a value is empty, the site's value is used.
struct ScriptRequest {
  std::string time;  // a time with units: 2h
  int nodes = 1;
  std::optional<int> ranks_per_node, gpus_per_node, cpus_per_rank;
  std::string account, queue, constraint, job_name;
  std::string environment;  // the folder of a Python environment
  std::vector<std::string> modules;
  std::string container;                         // the container image of the ranks
  std::vector<std::string> container_binds;      // source[:target]
  std::string container_mpi;                     // the folder of the host's MPI
  std::map<std::string, std::string> variables;  // what the ranks get in their environment
  std::vector<std::string> horovodrun_flags;     // words for horovodrun, if that starts the ranks
  bool is_elastic = false;                       // its ranks may fail; horovodrun starts them
  int spares = 0;                                // of an elastic job: places of ranks that spares have
  int least_ranks = 0;                           // of an elastic job
  std::optional<int> most_ranks;                 // of an elastic job
  bool is_requeued = false;
  int max_requeues = 20;
  std::vector<std::string> command;
};

Result<std::string> write_script(const Site& site, const ScriptRequest& request);

// Quotes a word so that a shell reads it as one word, whatever it contains.
std::string quoted(const std::string& word);

}  // namespace hvd::jobscripts
