#pragma once
// The checkpoints of a folder: which there are, which is the newest whole one, which may go.
//
// Newest is what was written last, told by the sequence number in the header; neither the step nor a clock decides, for
// both may go backwards.
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
  std::vector<Generation> whole;  // newest first; as far as their headers tell
  std::vector<Damaged> damaged;   // files of a checkpoint's name whose header is no good
};

// "folder/step-000000001200.h5"
std::string path_for_step(const std::string& folder, std::int64_t step);

// Files that end in .h5 or .h5.previous. An error if the folder cannot be read.
Result<Generations> generations_in(const std::string& folder);

// One more than the greatest sequence number of all checkpoints beside `path`, and of itself.
std::int64_t next_sequence(const std::string& path);

// Opens `path`, or the one before it where it is damaged or gone; of a folder, the newest that can be opened and, if
// `verifies`, is whole to the last byte. What was passed over, and why, is told to `skipped`.
Result<Reader> open_newest(const hdf5::Library& library, const std::string& path, bool verifies,
                           const std::function<void(const std::string& why)>& skipped);

// Removes all but the `keep` newest of path_for_step(); what cannot be read is left for people to look at.
Status remove_old(const std::string& folder, std::size_t keep);

}  // namespace hvd::checkpoint
