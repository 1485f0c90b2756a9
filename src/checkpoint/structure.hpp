#pragma once
// The HDF5 part of a checkpoint: groups, attributes and datasets made of a state, and a state read back from them. The
// bytes of most tensors are not moved here: HDF5 only says where they lie in the file.
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/state.hpp"
#include "native/hdf5/library.hpp"

namespace hvd::checkpoint {

struct Compression {
  enum class Method : std::uint8_t { none, gzip, lz4, zstd };
  Method method = Method::none;
  int level = -1;  // gzip 0 to 9, zstd 1 to 22; -1: the filter's own choice
};
// "", "none", "gzip", "gzip:6", "zstd:3", "lz4".
Result<Compression> compression_of(const std::string& text);

// Where a tensor's bytes belong in the file.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  const void* data = nullptr;
};

// Makes the file, which is there and empty, except for the extents it returns, in the order of their offsets: whoever
// calls writes them. The first `user_bytes` bytes are left to the caller, too.
Result<std::vector<Extent>> write_structure(const hdf5::Library& library, const std::string& path, const State& state,
                                            const Compression& compression, std::uint64_t user_bytes);

// A tensor of the file; bytes that lie in one piece can be read without HDF5.
struct Place {
  std::size_t entry = 0;  // in the state
  bool in_one_piece = false;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
struct Structure {
  State state;                // ordered by path
  std::vector<Place> places;  // of its tensors, in the same order
};
// What is no structure of ours is an error, never a crash; HDF5's own mistakes in what it reads are another matter, so
// verify the bytes before. `name` stands for the path in messages.
Result<Structure> read_structure(const hdf5::Library& library, const std::string& path, const std::string& name);

// The bytes of a tensor that does not lie in one piece.
Status read_through_hdf5(const hdf5::Library& library, const std::string& path, const std::string& name,
                         const Entry& entry, void* data, std::uint64_t bytes);

}  // namespace hvd::checkpoint
