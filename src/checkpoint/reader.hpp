#pragma once
// Reads a checkpoint and verifies every byte that it uses. The structure is verified when the file is opened, before
// HDF5 sees it. A tensor's bytes are verified when they are read.
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/seal.hpp"
#include "checkpoint/structure.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::checkpoint {

// Reads only the first 512 bytes of the file. This is cheap, so many files can be listed.
Result<Header> read_header(const std::string& path);

class Reader {
 public:
  static Result<Reader> open(const hdf5::Library& library, const std::string& path);

  const std::string& path() const noexcept { return path_; }
  const Header& header() const noexcept { return header_; }
  // The entries, ordered by path. Their tensors have no data.
  const State& state() const noexcept { return structure_.state; }
  // Returns null if there is no such entry.
  const Entry* find(std::string_view path) const noexcept;

  // Reads the tensor into `data`. `bytes` must be the tensor's size.
  Status read(std::string_view path, void* data, std::uint64_t bytes) const;
  // Reads and verifies all bytes that open() did not read. Keeps none of them. A few threads share the work.
  Status verify() const;

 private:
  Reader() = default;
  Status verify_blocks(Block::Content content) const;
  Status verify_block(const Block& block, Buffer& buffer) const;
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
