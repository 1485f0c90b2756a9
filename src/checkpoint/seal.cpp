#include "checkpoint/seal.hpp"

#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/checksums/crc32c.hpp"
#include "base/text/number.hpp"

namespace hvd::checkpoint {
namespace {

constexpr std::string_view first_line = "Horovod checkpoint\n";
constexpr std::string_view hdf5_signature = "\x89HDF\r\n\x1a\n";
constexpr std::size_t checksum_line_bytes = 16;  // size of the header's last line, "crc32c 01234567\n"

std::string hex(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

std::string checksum_line(std::string_view before) {
  return "crc32c " + hex(crc32c(as_bytes(before))) + "\n";
}

// Visits the header's numbers in the order in which they are written. The version of the layout is not among them.
template <typename AnyHeader, typename Visit>
void for_each_number(AnyHeader& header, Visit visit) {
  visit("bytes", header.file_bytes);
  visit("table", header.table_offset);
  visit("rows", header.table_rows);
  visit("table_crc32c", header.table_checksum);
  visit("step", header.step);
  visit("sequence", header.sequence);
  visit("saved_at_unix_s", header.saved_at_s);
}

// Returns the number after `name` in a line such as "name 12\n".
std::optional<std::int64_t> number_of(std::string_view text, std::string_view name) {
  std::string wanted = "\n" + std::string(name) + " ";
  std::size_t at = text.find(wanted);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + wanted.size());
  return number_in<std::int64_t>(text.substr(0, text.find('\n')));
}

}  // namespace

Error damaged(const std::string& path, const std::string& what) {
  return {ErrorCode::system, path + " is damaged: " + what + ". Restore an earlier checkpoint"};
}

std::string encode(const Header& header) {
  std::string text(first_line);
  auto add = [&](const char* name, auto value) { text += std::string(name) + " " + std::to_string(value) + "\n"; };
  add("layout", header.layout);
  for_each_number(header, add);
  text += "The HDF5 file begins at byte 512: h5dump, h5ls and h5py read it as it is.\n";
  text.resize(header_bytes - checksum_line_bytes, ' ');
  text.back() = '\n';
  return text + checksum_line(text);
}

Result<Header> decode_header(ConstBytes bytes, const std::string& path) {
  std::string text = to_string(bytes);
  const bool is_ours =
      text.starts_with(first_line) || first_line.starts_with(text) || text.find_first_not_of('\0') == std::string::npos;
  if (text.size() < header_bytes && is_ours)
    return damaged(path, "it has " + std::to_string(text.size()) + " bytes, less than a header");
  text.resize(header_bytes);
  std::string_view body = std::string_view(text).substr(0, header_bytes - checksum_line_bytes);
  if (std::string_view(text).substr(body.size()) != checksum_line(body)) {
    if (text.find_first_not_of('\0') == std::string::npos)
      return damaged(path, "its first 512 bytes are zeros, as a power failure leaves them");
    if (text.starts_with(first_line) || text.find("\ncrc32c ") != std::string::npos)
      return damaged(path, "its first 512 bytes are not what was written");
    const char* what = text.starts_with(hdf5_signature) ? "an HDF5 file, but no checkpoint of Horovod"
                                                        : "no checkpoint of Horovod, or its beginning is lost";
    return Error(ErrorCode::invalid_argument, path + " is " + what);
  }
  auto layout = number_of(body, "layout");
  if (!text.starts_with(first_line) || !layout) return damaged(path, "its header names no layout");
  if (*layout > newest_layout)
    return Error(ErrorCode::unsupported, path + " has layout " + std::to_string(*layout) +
                                             ", which a newer Horovod wrote; this one reads up to layout " +
                                             std::to_string(newest_layout) + ". Load a newer Horovod");
  Header header;
  header.layout = static_cast<int>(*layout);
  bool is_whole = true;
  for_each_number(header, [&](const char* name, auto& into) {
    auto number = number_of(body, name);
    is_whole = is_whole && number.has_value();
    into = static_cast<std::remove_reference_t<decltype(into)>>(number.value_or(0));
  });
  bool fits = header.table_offset >= header_bytes && header.table_offset <= header.file_bytes &&
              header.table_rows == (header.file_bytes - header.table_offset) / table_row_bytes &&
              header.table_rows * table_row_bytes == header.file_bytes - header.table_offset;
  if (!is_whole || !fits) return damaged(path, "the numbers of its header do not fit together");
  return header;
}

std::string encode(const std::vector<Block>& blocks) {
  Buffer bytes;
  bytes.reserve(blocks.size() * table_row_bytes);
  ByteWriter writer(bytes);
  for (const Block& block : blocks) {
    writer.put(block.offset);
    writer.put(block.bytes);
    writer.put(block.checksum);
    writer.put(static_cast<std::uint32_t>(block.content));
  }
  return to_string(bytes);
}

Result<std::vector<Block>> decode_table(ConstBytes bytes, const Header& header, const std::string& path) {
  if (crc32c(bytes) != header.table_checksum) return damaged(path, "its table of checksums is not what was written");
  std::vector<Block> blocks;
  blocks.reserve(header.table_rows);
  ByteReader reader(bytes);
  std::uint64_t next = header_bytes;
  while (!reader.at_end()) {
    Block block;
    block.offset = reader.get<std::uint64_t>();
    block.bytes = reader.get<std::uint64_t>();
    block.checksum = reader.get<std::uint32_t>();
    block.content = static_cast<Block::Content>(reader.get<std::uint32_t>());
    if (!reader.ok() || block.offset != next || block.bytes > header.table_offset - next ||
        block.content > Block::Content::data)
      return damaged(path, "its table of checksums leaves something out");
    next += block.bytes;
    blocks.push_back(block);
  }
  if (next != header.table_offset) return damaged(path, "its table of checksums does not cover all of it");
  return blocks;
}

}  // namespace hvd::checkpoint
