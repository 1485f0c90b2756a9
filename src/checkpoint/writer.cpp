#include "checkpoint/writer.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>

#include "base/checksums/crc32c.hpp"
#include "checkpoint/seal.hpp"
#include "native/posix/files/file_in_place.hpp"

namespace hvd::checkpoint {
namespace {

// Estimates of the space that HDF5 needs. The headers, links and attributes of an entry take a few hundred bytes;
// HDF5's tables grow in steps.
constexpr std::uint64_t bytes_per_entry = 2048;
constexpr std::uint64_t bytes_besides = 1 << 20;

std::uint64_t expected_bytes(const State& state) {
  std::uint64_t bytes = bytes_besides + bytes_per_entry * state.size();
  for (const Entry& entry : state) {
    if (const auto* tensor = std::get_if<Tensor>(&entry.content))
      bytes += static_cast<std::uint64_t>(bytes_of(*tensor).value());
    else if (const auto* text = std::get_if<std::string>(&entry.content)) bytes += text->size();
  }
  return bytes;
}

class FileWriter {
 public:
  FileWriter(posix::FileInPlace& file, std::vector<Extent> extents) : file_(file), extents_(std::move(extents)) {}

  // Writes everything after the header, and returns the offset at which it ends.
  Result<std::uint64_t> write_and_sum() {
    struct stat about {};
    if (::fstat(file_.descriptor(), &about) != 0)
      return system_error("the size of " + file_.temporary_path() + " cannot be read", errno);
    auto end = static_cast<std::uint64_t>(about.st_size);
    std::uint64_t at = header_bytes;
    for (const Extent& extent : extents_) {
      if (extent.offset < at || extent.offset + extent.bytes > end)
        return Error(ErrorCode::system, file_.temporary_path() + ": HDF5 gave a tensor a place outside of the file");
      HVD_RETURN_IF_ERROR(sum_structure(at, extent.offset));
      HVD_RETURN_IF_ERROR(write_data(extent));
      at = extent.offset + extent.bytes;
    }
    HVD_RETURN_IF_ERROR(sum_structure(at, end));
    return end;
  }

  Status seal(std::uint64_t end, const WriteOptions& options) {
    std::string table = encode(blocks_);
    HVD_RETURN_IF_ERROR(file_.write(as_bytes(table), end));
    Header header;
    header.file_bytes = end + table.size();
    header.table_offset = end;
    header.table_rows = blocks_.size();
    header.table_checksum = crc32c(as_bytes(table));
    header.step = options.step;
    header.sequence = options.sequence;
    header.saved_at_s = static_cast<std::int64_t>(std::time(nullptr));
    bytes_ = header.file_bytes;
    return file_.write(as_bytes(encode(header)), 0);
  }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  Status write_data(const Extent& extent) {
    const auto* data = static_cast<const std::byte*>(extent.data);
    for (std::uint64_t done = 0; done < extent.bytes;) {
      std::uint64_t size = std::min(block_bytes, extent.bytes - done);
      ConstBytes piece(data + done, size);
      blocks_.push_back({extent.offset + done, size, crc32c(piece), Block::Content::data});
      HVD_RETURN_IF_ERROR(file_.write(piece, extent.offset + done));
      // The disk begins to write now, while the next piece is summed and copied, instead of only at fsync.
      if (size == block_bytes) file_.start_writing_back(extent.offset + done, size);
      done += size;
    }
    return {};
  }

  Status sum_structure(std::uint64_t from, std::uint64_t to) {
    while (from < to) {
      buffer_.resize(std::min(block_bytes, to - from));
      HVD_RETURN_IF_ERROR(file_.read(buffer_, from));
      blocks_.push_back({from, buffer_.size(), crc32c(buffer_), Block::Content::structure});
      from += buffer_.size();
    }
    return {};
  }

  posix::FileInPlace& file_;
  std::vector<Extent> extents_;
  std::vector<Block> blocks_;
  Buffer buffer_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Result<Written> write_file(const hdf5::Library& library, const std::string& path, const State& state,
                           const WriteOptions& options) {
  auto began = std::chrono::steady_clock::now();
  HVD_RETURN_IF_ERROR(check(state));
  auto file = posix::FileInPlace::create(path);
  if (!file) return file.error();
  HVD_RETURN_IF_ERROR(file->reserve(expected_bytes(state)));
  auto extents = write_structure(library, file->temporary_path(), state, options.compression, header_bytes);
  if (!extents) return extents.error();
  FileWriter writer(*file, std::move(*extents));
  auto end = writer.write_and_sum();
  if (!end) return end.error();
  HVD_RETURN_IF_ERROR(writer.seal(*end, options));
  HVD_RETURN_IF_ERROR(file->commit(options.keeps_previous ? previous_suffix : "", options.may_replace));
  return Written{writer.bytes(), std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()};
}

}  // namespace hvd::checkpoint
