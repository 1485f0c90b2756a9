#pragma once
// Reads a checkpoint of which every byte is verified: the structure when it is opened, before HDF5 sees it; a tensor's
// bytes when they are read.
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/seal.hpp"
#include "checkpoint/structure.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::checkpoint {

// Its first 512 bytes alone: cheap, for listing many.
Result<Header> read_header(const std::string& path);

class Reader {
 public:
  static Result<Reader> open(const hdf5::Library& library, const std::string& path);

  const std::string& path() const noexcept { return path_; }
  const Header& header() const noexcept { return header_; }
  // Ordered by path; tensors have no data.
  const State& state() const noexcept { return structure_.state; }
  // Null if there is no such entry.
  const Entry* find(std::string_view path) const noexcept;

  // The tensor's bytes, `bytes` of them, into the caller's memory.
  Status read(std::string_view path, void* data, std::uint64_t bytes) const;
  // Reads everything that open() did not, and keeps nothing of it.
  Status verify() const;

 private:
  Reader() = default;
  Status verify_blocks(Block::Content content) const;
  Status read_blocks(const Place& place, std::byte* data) const;
  std::string name_of_descriptor() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

  const hdf5::Library* library_ = nullptr;
  std::string path_;
  posix::FileDescriptor file_;
  Header header_;
  std::vector<Block> blocks_;
  Structure structure_;
};

}  // namespace hvd::checkpoint
