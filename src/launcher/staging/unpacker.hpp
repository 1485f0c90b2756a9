#pragma once
// Unpacks an archive into a folder while its bytes arrive, by the system's tar and, if it is compressed, by the program
// for that. Every member is checked before tar gets it.
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

// How the file is packed, by its first bytes: none, gzip, zstd, xz, bzip2. Fails if it is no archive.
Result<std::string> packing_of(std::string_view begin);
inline constexpr std::size_t packing_bytes = 512;  // so many of them say it

// Of one thread. Blocks while the programs do not keep up. SIGPIPE must be ignored.
class Unpacker {
 public:
  struct Options {
    std::string folder;
    std::string packing;
    std::uint64_t room_bytes;  // that are free in the folder
  };
  static Result<std::unique_ptr<Unpacker>> start(Options options);
  // The next bytes of the archive. After an error there is no other call.
  Status add(ConstBytes bytes);
  // The archive is complete. If there was no room for its files, the error says how much they need.
  Status finish();

 private:
  explicit Unpacker(Options options) : options_(std::move(options)) {}
  Status drain(bool until_its_end);
  Status take(ConstBytes bytes);
  Status failure_of_tar();

  Options options_;
  TarCheck check_;
  std::optional<FilterProcess> filter_, tar_;
  bool has_no_room_ = false;  // from then on the members are only counted
  std::array<std::byte, 256 << 10> chunk_{};
};

}  // namespace hvd::launcher::staging
