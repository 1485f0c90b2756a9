#pragma once
// The checkpoints of a folder: lists them, finds the newest complete one, and removes old ones.
//
// The newest checkpoint is the one that was written last. The sequence number in the header decides. The step and the
// clock do not, because both may go backwards.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/reader.hpp"

namespace hvd::checkpoint {

struct Generation {
  std::string path;
  Header header;
};
struct Damaged {
  std::string path;
  std::string why;
};
struct Generations {
  std::vector<Generation> whole;  // checkpoints whose headers are valid, newest first
  std::vector<Damaged> damaged;   // checkpoints whose header is invalid, and steps' names without any checkpoint
};

// Returns text such as "folder/step-000000001200.h5".
std::string path_for_step(const std::string& folder, std::int64_t step);

// Returns the files that end in .h5 or .h5.previous. Fails if the folder cannot be read.
Result<Generations> generations_in(const std::string& folder);

// Returns one more than the greatest sequence number of `path` and of all checkpoints in its folder.
std::int64_t next_sequence(const std::string& path);

// Opens `path`. If it is damaged or missing, opens the checkpoint before it. If `path` is a folder, opens the newest
// checkpoint that can be opened. With `verifies`, every byte of the checkpoint must be valid too. `skipped` is called
// with the reason for each checkpoint that was not taken. A folder without any checkpoint gives
// ErrorCode::invalid_argument, one where no checkpoint can be opened ErrorCode::system.
Result<Reader> open_newest(const hdf5::Library& library, const std::string& path, bool verifies,
                           const std::function<void(const std::string& why)>& skipped);
// Opens the newest checkpoint of a folder that can be opened and has a lower sequence number than `sequence`.
Result<Reader> open_before(const hdf5::Library& library, const std::string& folder, std::int64_t sequence,
                           bool verifies, const std::function<void(const std::string& why)>& skipped);

// Removes the checkpoints named by path_for_step() except the `keep` newest. `may_remove` is asked before each. Files
// that cannot be read, and those with names of the user's, are left for people to look at.
Status remove_old(const std::string& folder, std::size_t keep, const std::function<Status()>& may_remove);

}  // namespace hvd::checkpoint
