#pragma once
// Reads a tar archive by libarchive, from a descriptor as its bytes arrive, and writes its members to the disk.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "native/archive/calls.hpp"

namespace hvd::archive {

struct Member {
  enum class Kind : std::uint8_t { file, folder, link, hard_link, other };
  std::string path;
  Kind kind = Kind::file;
  std::string target;       // of a link
  std::uint64_t bytes = 0;  // of a file
};

// Used by one thread.
class Reader {
 public:
  // The archive is packed by "zstd", "xz", "bzip2" or "none"; for gzip there is Gunzip. The descriptor stays the
  // caller's.
  static Result<Reader> open(const Calls& calls, int descriptor, std::string packing);

  // Goes to the next member. Returns nothing at the end of the stream; then it was read to the last byte, so that the
  // checksum of its compression is checked, too. Members after an end mark are members like others.
  Result<std::optional<Member>> next();
  // Writes the current member below the working folder of the process. Writes nothing through a link.
  Status extract();
  bool lacks_room() const;    // extract() has failed because the file system is full, or the user's quota is reached
  bool has_end_mark() const;  // the stream ended with the mark of an archive's end
  // Call it at the end: completes times and modes of folders.
  Status finish();

 private:
  struct EndOfReading {
    void operator()(Handle handle) const;
  };
  struct EndOfWriting {
    void operator()(Handle handle) const;
  };
  Reader(const Calls& calls, std::string packing) : calls_(&calls), packing_(std::move(packing)) {}
  Error not_read() const;
  Error not_written() const;
  const Calls* calls_;
  std::string packing_;
  bool has_filter_ = true;  // for the packing
  std::unique_ptr<OfLibarchive, EndOfReading> archive_;
  std::unique_ptr<OfLibarchive, EndOfWriting> disk_;
  Entry entry_ = nullptr;  // libarchive's
};

}  // namespace hvd::archive
