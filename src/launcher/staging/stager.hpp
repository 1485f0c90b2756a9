#pragma once
// A stager is a process that horovodrun starts instead of a rank before the job. The first stager on each node brings
// the archive there:
//
//  1. All stagers meet, as ranks do. Rank 0's stager tells which archive it is. If the environment is on its node from
//     an earlier job, it tells the digest, too.
//  2. Each node tells whether it has the environment. If all nodes have it, nothing else is done.
//  3. Rank 0's node and the nodes without the environment form a chain (chain.hpp). Rank 0's node reads the archive.
//     Each node of the chain passes the blocks on and unpacks them.
//  4. All stagers wait until all nodes have the environment. Rank 0's stager prints the digest on its standard output.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher::staging {

// The first argument of a stager. The next arguments are the action, the name of the job, the archive (for removal: the
// digest), and the folder that the user named (or "-").
inline constexpr const char* stager_flag = "--as-stager-of-an-environment";
inline constexpr const char* to_stage = "stage";
inline constexpr const char* to_remove = "remove";
int run_stager(char** arguments);

struct Staged {
  std::string digest;
  int nodes = 0, new_nodes = 0;  // new_nodes: the nodes that did not have the environment before
};
// Finds the result that rank 0's stager prints, in a line of a launcher's output.
std::optional<Staged> staged_in(std::string_view line);

}  // namespace hvd::launcher::staging
