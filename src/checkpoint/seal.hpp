#pragma once
// What lies around the HDF5 part of a checkpoint: 512 bytes before it that name the file and its length, and a table of
// checksums behind it that covers every other byte. docs/checkpoint-layout.md describes both.
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace hvd::checkpoint {

inline constexpr int newest_layout = 1;
inline constexpr std::uint64_t header_bytes = 512;
inline constexpr std::uint64_t block_bytes = 4 << 20;  // most of one checksum
inline constexpr std::uint64_t table_row_bytes = 24;

struct Header {
  std::uint64_t file_bytes = 0;
  std::uint64_t table_offset = 0;
  std::uint64_t table_rows = 0;
  std::uint32_t table_checksum = 0;
  std::int64_t step = -1;       // of the training; -1: it was not told
  std::int64_t sequence = 0;    // greater than that of every checkpoint that was in the folder before
  std::int64_t saved_at_s = 0;  // since 1970, by the clock of the host that wrote it
  int layout = newest_layout;
  friend bool operator==(const Header&, const Header&) = default;
};

// A piece of the file and its CRC-32C. Rows are in the order of offsets and leave nothing out.
struct Block {
  enum class Content : std::uint32_t { structure, data };
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t checksum = 0;
  Content content = Content::structure;  // structure is verified before HDF5 sees the file, data when it is read
  friend bool operator==(const Block&, const Block&) = default;
};

// What every damage is reported as; its code is `system`, by which an earlier checkpoint is tried.
Error damaged(const std::string& path, const std::string& what);

std::string encode(const Header& header);
std::string encode(const std::vector<Block>& blocks);

// `path` is for messages.
Result<Header> decode_header(ConstBytes bytes, const std::string& path);
Result<std::vector<Block>> decode_table(ConstBytes bytes, const Header& header, const std::string& path);

}  // namespace hvd::checkpoint
