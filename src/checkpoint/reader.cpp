#include "checkpoint/reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "base/checksums/crc32c.hpp"
#include "checkpoint/share.hpp"
#include "native/posix/files/file_in_place.hpp"
#include "native/posix/machine/host_identity.hpp"

namespace hvd::checkpoint {
namespace {

// The size of one read. After a read of this size the data are still in the core's cache when their checksum is
// computed.
constexpr std::uint64_t piece_bytes = 256 << 10;
constexpr std::size_t least_blocks_each = 4;  // for a thread that verifies

struct OpenFile {
  posix::FileDescriptor file;
  std::uint64_t bytes = 0;
  Header header;
};

Result<OpenFile> open_file(const std::string& path) {
  OpenFile opened;
  // With O_NONBLOCK, opening a pipe does not wait.
  opened.file = posix::FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.file) {
    int reason = errno;
    std::string hint = reason == ENOENT ? " on host " + posix::host_name() + ", where rank 0 looks for it" : "";
    return system_error("the checkpoint " + path + " cannot be opened" + hint, reason);
  }
  struct stat about {};
  if (::fstat(opened.file.get(), &about) != 0) return system_error("fstat of " + path, errno);
  if (S_ISDIR(about.st_mode))
    return Error(ErrorCode::invalid_argument, path + " is a folder, not a checkpoint; latest() finds the newest in it");
  if (!S_ISREG(about.st_mode))
    return Error(ErrorCode::invalid_argument, path + " is a device, socket or pipe, no file");
  opened.bytes = static_cast<std::uint64_t>(about.st_size);
  Buffer head(std::min(header_bytes, opened.bytes));
  HVD_RETURN_IF_ERROR(posix::read_at(opened.file.get(), head, 0, path));
  auto header = decode_header(head, path);
  if (!header) return header.error();
  opened.header = *header;
  if (opened.bytes < header->file_bytes)
    return damaged(
        path, "it ends after " + std::to_string(opened.bytes) + " of " + std::to_string(header->file_bytes) + " bytes");
  return opened;
}

}  // namespace

Result<Header> read_header(const std::string& path) {
  auto opened = open_file(path);
  if (!opened) return opened.error();
  return opened->header;
}

Result<Reader> Reader::open(const hdf5::Library& library, const std::string& path) {
  auto opened = open_file(path);
  if (!opened) return opened.error();
  Reader reader;
  reader.library_ = &library;
  reader.path_ = path;
  reader.file_ = std::move(opened->file);
  reader.header_ = opened->header;
  Buffer table(reader.header_.table_rows * table_row_bytes);
  HVD_RETURN_IF_ERROR(posix::read_at(reader.file_.get(), table, reader.header_.table_offset, path));
  auto blocks = decode_table(table, reader.header_, path);
  if (!blocks) return blocks.error();
  reader.blocks_ = std::move(*blocks);
  HVD_RETURN_IF_ERROR(reader.verify_blocks(Block::Content::structure));
  // HDF5 opens the file by its descriptor, because another file may have got the path meanwhile.
  auto structure = read_structure(library, reader.name_of_descriptor(), path);
  if (!structure) return structure.error();
  reader.structure_ = std::move(*structure);
  return reader;
}

const Entry* Reader::find(std::string_view path) const noexcept {
  const State& all = structure_.state;
  auto at = std::lower_bound(all.begin(), all.end(), path,
                             [](const Entry& entry, std::string_view wanted) { return entry.path < wanted; });
  return at != all.end() && at->path == path ? &*at : nullptr;
}

Status Reader::read(std::string_view path, void* data, std::uint64_t bytes) const {
  const Entry* entry = find(path);
  if (entry == nullptr || !std::holds_alternative<Tensor>(entry->content))
    return Error(ErrorCode::invalid_argument, path_ + " has no tensor " + std::string(path));
  const auto index = static_cast<std::size_t>(entry - structure_.state.data());
  auto place = std::lower_bound(structure_.places.begin(), structure_.places.end(), index,
                                [](const Place& candidate, std::size_t wanted) { return candidate.entry < wanted; });
  if (place->bytes != bytes)
    return Error(ErrorCode::invalid_argument, path_ + ": " + entry->path + " has " + std::to_string(place->bytes) +
                                                  " bytes, and the memory for it " + std::to_string(bytes));
  if (bytes == 0) return {};
  if (place->in_one_piece) return read_blocks(*place, static_cast<std::byte*>(data));
  // Tensors stored in chunks are part of the structure, which was verified at opening. HDF5 does not say why it cannot
  // read one: the file may have been damaged since.
  Status outcome = read_through_hdf5(*library_, name_of_descriptor(), path_, *entry, data, bytes);
  if (!outcome) HVD_RETURN_IF_ERROR(verify_blocks(Block::Content::structure));
  return outcome;
}

Status Reader::read_blocks(const Place& place, std::byte* data) const {
  auto block = std::lower_bound(blocks_.begin(), blocks_.end(), place.offset,
                                [](const Block& candidate, std::uint64_t offset) { return candidate.offset < offset; });
  std::uint64_t done = 0;
  for (; done < place.bytes; ++block) {
    if (block == blocks_.end() || block->offset != place.offset + done || block->bytes > place.bytes - done)
      return damaged(path_, "its checksums do not fit its tensors");
    std::uint32_t sum = 0;
    for (std::uint64_t in_block = 0; in_block < block->bytes; in_block += piece_bytes) {
      Bytes piece(data + done + in_block, std::min(piece_bytes, block->bytes - in_block));
      HVD_RETURN_IF_ERROR(posix::read_at(file_.get(), piece, block->offset + in_block, path_));
      sum = crc32c(piece, sum);
    }
    if (sum != block->checksum)
      return damaged(path_, structure_.state[place.entry].path + " is not what was written (bytes " +
                                std::to_string(block->offset) + " to " + std::to_string(block->offset + block->bytes) +
                                ")");
    done += block->bytes;
  }
  return {};
}

Status Reader::verify() const {
  return verify_blocks(Block::Content::data);
}

Status Reader::verify_block(const Block& block, Buffer& buffer) const {
  std::uint32_t sum = 0;
  for (std::uint64_t done = 0; done < block.bytes; done += buffer.size()) {
    buffer.resize(std::min(piece_bytes, block.bytes - done));
    HVD_RETURN_IF_ERROR(posix::read_at(file_.get(), buffer, block.offset + done, path_));
    sum = crc32c(buffer, sum);
  }
  if (sum == block.checksum) return {};
  return damaged(path_, "bytes " + std::to_string(block.offset) + " to " + std::to_string(block.offset + block.bytes) +
                            " are not what was written");
}

// Several threads take the blocks in turn. The first damage in the file is reported, no matter which thread has found
// it.
Status Reader::verify_blocks(Block::Content content) const {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t damaged_at = blocks_.size();
  Status outcome;
  auto work = [&] {
    Buffer buffer;
    for (std::size_t at = next++; at < blocks_.size(); at = next++) {
      if (blocks_[at].content != content) continue;
      Status found = verify_block(blocks_[at], buffer);
      if (found) continue;
      std::lock_guard lock(mutex);
      next = blocks_.size();
      if (at < damaged_at) {
        damaged_at = at;
        outcome = std::move(found);
      }
    }
  };
  share(helpers_for(blocks_.size(), least_blocks_each), "hvd-verify", work);
  return outcome;
}

}  // namespace hvd::checkpoint
