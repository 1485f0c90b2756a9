#pragma once
// Writes a state as one file that is complete or does not exist.
//
//  1. The file is begun under a temporary name in the same folder, and its space is reserved.
//  2. HDF5 writes the structure and tells the positions of the tensors' bytes. After that HDF5 has closed the file.
//  3. The tensors' bytes are written to these positions. Their checksums are computed from the memory.
//  4. Checksums of the structure, the table of all checksums and the header follow, then fsync.
//  5. The previous file becomes the previous generation, and the new file takes its path.
// If the process is killed at any instant, either the old file or the new file is there.
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.hpp"
#include "checkpoint/state.hpp"
#include "checkpoint/structure.hpp"

namespace hvd::checkpoint {

// The previous generation has the path of the file with this suffix.
inline constexpr const char* previous_suffix = ".previous";

struct WriteOptions {
  Compression compression;
  bool keeps_previous = true;
  std::int64_t step = -1;
  std::int64_t sequence = 0;
  std::function<Status()> may_replace;  // asked when the file is durable, before it takes its place; null: it may
};

struct Written {
  std::uint64_t bytes = 0;
  double seconds = 0;
};

// Writes the file. Blocks until the file is durable. The tensors' memory is only read. May be called on any thread.
Result<Written> write_file(const hdf5::Library& library, const std::string& path, const State& state,
                           const WriteOptions& options);

}  // namespace hvd::checkpoint
