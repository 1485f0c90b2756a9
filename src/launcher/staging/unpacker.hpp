#pragma once
// Unpacks an archive into a folder while its bytes arrive. libarchive reads it and writes its members, on a thread. A
// member is checked by our rules before it is written.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "native/archive/gunzip.hpp"
#include "native/archive/reader.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher::staging {

// Finds out from the first bytes how the file is packed: none, gzip, zstd, xz, bzip2. Fails if it is not an archive.
Result<std::string> packing_of(std::string_view begin);
inline constexpr std::size_t packing_bytes = 512;  // the number of bytes that packing_of() needs

// Used by one thread. Blocks while the disk is slower than the caller. SIGPIPE must be ignored.
class Unpacker {
 public:
  struct Options {
    std::string folder;  // becomes the working folder of the process
    std::string packing;
    std::uint64_t room_bytes;  // free bytes in the folder
  };
  static Result<std::unique_ptr<Unpacker>> start(Options options);
  ~Unpacker() { (void)end(); }
  // Takes the next bytes of the archive. After an error it must not be called again.
  Status add(ConstBytes bytes);
  // Call it when the archive is complete. If the files did not fit into the folder, the error says how much room they
  // need.
  Status finish();

 private:
  explicit Unpacker(Options options) : options_(std::move(options)) {}
  Status write(ConstBytes bytes);
  Status end();
  Status unpack(archive::Reader& reader) const;  // on the thread

  Options options_;
  std::optional<archive::Gunzip> gunzip_;  // on the caller's thread, so that both have work
  posix::FileDescriptor to_thread_;        // a pipe with the archive's bytes
  std::thread thread_;
  Status outcome_;  // of the thread, when it has ended
};

}  // namespace hvd::launcher::staging
