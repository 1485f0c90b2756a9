#pragma once
// A stager stands in the place of a rank before the job starts. The first one on each node brings the archive there:
//
// 1. All meet, as ranks do. That of rank 0 says which archive it is, and its digest if the environment lies on its node
//    from an earlier job.
// 2. Each node says whether the environment lies there. If it lies on all of them, that is all.
// 3. Rank 0's node reads the archive. It and the nodes that lack the environment are a chain (chain.hpp), in which each
//    one passes the blocks on and unpacks them.
// 4. All wait until it lies on all nodes. Rank 0 tells the digest on its standard output.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher::staging {

// The first argument. What to do, the name of the job, the archive (to remove: the digest), and the wish for a folder
// (or "-") follow.
inline constexpr const char* stager_flag = "--as-stager-of-an-environment";
inline constexpr const char* to_stage = "stage";
inline constexpr const char* to_remove = "remove";
int run_stager(char** arguments);

struct Staged {
  std::string digest;
  int nodes = 0, new_nodes = 0;  // new: they lacked it
};
// Finds what rank 0 tells, in a line of a launcher's output.
std::optional<Staged> staged_in(std::string_view line);

}  // namespace hvd::launcher::staging
