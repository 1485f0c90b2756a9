#pragma once
// Writes a state as one file that is whole or not there.
//
//  1. The file is begun under a temporary name beside its place, and its space is taken.
//  2. HDF5 makes the structure and tells where the tensors' bytes belong. It is then done with the file.
//  3. The tensors' bytes are written there, with checksums from the memory that they come from.
//  4. Checksums of the structure, the table of all checksums and the header follow, then fsync.
//  5. The file that was there before becomes the previous generation, and the new one takes its place.
// Killed at any instant, this leaves the old file or the new one.
#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "checkpoint/state.hpp"
#include "checkpoint/structure.hpp"

namespace hvd::checkpoint {

// What the generation before is called: path + this.
inline constexpr const char* previous_suffix = ".previous";

struct WriteOptions {
  Compression compression;
  bool keeps_previous = true;
  std::int64_t step = -1;
  std::int64_t sequence = 0;
};

struct Written {
  std::uint64_t bytes = 0;
  double seconds = 0;
};

// Blocks until the file is durable. The tensors' memory is only read. Any thread.
Result<Written> write_file(const hdf5::Library& library, const std::string& path, const State& state,
                           const WriteOptions& options);

}  // namespace hvd::checkpoint
