#pragma once
// Unpacks an archive into a folder while its bytes arrive. Uses the system's tar and, if the archive is compressed, the
// program that decompresses it. Every member is checked before tar gets it.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "launcher/staging/filter_process.hpp"
#include "launcher/staging/tar_check.hpp"

namespace hvd::launcher::staging {

// Finds out from the first bytes how the file is packed: none, gzip, zstd, xz, bzip2. Fails if it is not an archive.
Result<std::string> packing_of(std::string_view begin);
inline constexpr std::size_t packing_bytes = 512;  // the number of bytes that packing_of() needs

// Used by one thread. Blocks while tar is slower than the caller. SIGPIPE must be ignored.
class Unpacker {
 public:
  struct Options {
    std::string folder;
    std::string packing;
    std::uint64_t room_bytes;  // free bytes in the folder
  };
  static Result<std::unique_ptr<Unpacker>> start(Options options);
  // Takes the next bytes of the archive. After an error it must not be called again.
  Status add(ConstBytes bytes);
  // Call it when the archive is complete. If the files did not fit into the folder, the error says how much room they
  // need.
  Status finish();

 private:
  explicit Unpacker(Options options) : options_(std::move(options)) {}
  Status drain(bool until_its_end);
  Status take(ConstBytes bytes);
  Status failure_of_tar();

  Options options_;
  TarCheck check_;
  std::optional<FilterProcess> filter_, tar_;
  bool has_no_room_ = false;  // there was no room: later members are only counted
  std::array<std::byte, 256 << 10> chunk_{};
};

}  // namespace hvd::launcher::staging
