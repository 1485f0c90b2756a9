#pragma once
// The HDF5 part of a checkpoint. Writes a state as groups, attributes and datasets, and reads it back. The bytes of
// most tensors are not moved here: HDF5 only tells their position in the file.
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
  int level = -1;  // gzip 0 to 9, zstd 1 to 22; -1: the filter's default
};
// Parses text such as "", "none", "gzip", "gzip:6", "zstd:3", "lz4".
Result<Compression> compression_of(const std::string& text);

// The position of a tensor's bytes in the file.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  const void* data = nullptr;
};

// Writes the structure into the existing empty file, and returns the extents of the tensors in the order of their
// offsets. The caller writes the bytes of these extents. The first `user_bytes` bytes of the file are also left to the
// caller.
Result<std::vector<Extent>> write_structure(const hdf5::Library& library, const std::string& path, const State& state,
                                            const Compression& compression, std::uint64_t user_bytes);

// A tensor of the file. If its bytes are in one piece, they can be read without HDF5.
struct Place {
  std::size_t entry = 0;  // index of the tensor's entry in the state
  bool in_one_piece = false;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
struct Structure {
  State state;                // the entries are ordered by path
  std::vector<Place> places;  // places of the state's tensors, in the same order
};
// Reads the structure. If the file is not a checkpoint of this layout, the result is an error and never a crash. HDF5
// itself may fail on damaged bytes, so the bytes should be verified before. `name` replaces the path in messages.
Result<Structure> read_structure(const hdf5::Library& library, const std::string& path, const std::string& name);

// Reads a tensor whose bytes are not in one piece.
Status read_through_hdf5(const hdf5::Library& library, const std::string& path, const std::string& name,
                         const Entry& entry, void* data, std::uint64_t bytes);

}  // namespace hvd::checkpoint
