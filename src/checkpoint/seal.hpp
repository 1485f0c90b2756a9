#pragma once
// The parts of a checkpoint around its HDF5 part. The header of 512 bytes before it identifies the file and gives its
// length. A table behind it has checksums of every other byte. docs/checkpoint-layout.md describes both.
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace hvd::checkpoint {

inline constexpr int newest_layout = 1;
inline constexpr std::uint64_t header_bytes = 512;
inline constexpr std::uint64_t block_bytes = 4 << 20;  // most bytes of one checksum
inline constexpr std::uint64_t table_row_bytes = 24;

struct Header {
  std::uint64_t file_bytes = 0;
  std::uint64_t table_offset = 0;
  std::uint64_t table_rows = 0;
  std::uint32_t table_checksum = 0;
  std::int64_t step = -1;       // step of the training; -1: not known
  std::int64_t sequence = 0;    // greater than in every earlier checkpoint of the folder
  std::int64_t saved_at_s = 0;  // seconds since 1970, by the clock of the host that wrote the file
  int layout = newest_layout;
  friend bool operator==(const Header&, const Header&) = default;
};

// A piece of the file and its CRC-32C. The rows are ordered by offset and cover everything without a gap.
struct Block {
  enum class Content : std::uint32_t { structure, data };
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;
  Content content = Content::structure;  // the structure is verified before HDF5 sees the file, the data of tensors
                                         // when they are read
  friend bool operator==(const Block&, const Block&) = default;
};

// Makes the error for any damage. Its code is `system`; for this code the caller tries an earlier checkpoint.
Error damaged(const std::string& path, const std::string& what);

std::string encode(const Header& header);
std::string encode(const std::vector<Block>& blocks);

// `path` is used only in messages.
Result<Header> decode_header(ConstBytes bytes, const std::string& path);
Result<std::vector<Block>> decode_table(ConstBytes bytes, const Header& header, const std::string& path);

}  // namespace hvd::checkpoint
