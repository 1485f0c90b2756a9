#pragma once
// The environments that lie unpacked on this node, in one folder of this user. Others may come and go at any time:
//
//  FOLDER/DIGEST/content/   what was in the archive with this digest
//  FOLDER/DIGEST/record     is there when the environment can be used: of which archive, and where its bin is
//  FOLDER/DIGEST/last-use   the last job that wanted it
//  FOLDER/unpacking-XXXXXX/ becomes DIGEST by being renamed
//
// A lock (flock) on DIGEST or unpacking-XXXXXX itself keeps it: exclusive while it is made ready or removed, shared by
// every rank that uses it. The kernel takes the lock away from a process that ends, however it ends.
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::launcher::staging {

// What tells whether a file is still the one that was unpacked, without reading it.
struct ArchiveState {
  std::string path;  // absolute
  std::uint64_t bytes = 0;
  std::string state;  // inode, size, and times of change
  static Result<ArchiveState> of(const std::string& path);
};

// An environment that can be used for as long as the lock is held.
struct Kept {
  posix::FileDescriptor lock;
  std::string prefix;  // its folder with bin in it
};

// A folder that an archive is unpacked into.
struct Unpacking {
  posix::FileDescriptor lock;
  std::string folder, content;
};

// Removes the folder with all in it, also where an archive has folders that may not be written to.
void remove_tree(const std::string& folder);

class Environments {
 public:
  // `parent` is the user's wish; empty: TMPDIR, or /tmp. Makes the folder. Fails if it could be another user's.
  static Result<Environments> in(const std::string& parent, const std::string& temporary_folder);
  const std::string& folder() const { return folder_; }
  std::uint64_t free_bytes() const;

  // Returns the digest of this archive if it lies here; else an empty text.
  std::string digest_of(const ArchiveState& archive) const;
  // Waits while somebody makes it ready. Nothing if it is not here.
  std::optional<Kept> use(const std::string& digest) const;
  void note_use(const std::string& digest, const std::string& job) const;

  Result<Unpacking> begin() const;
  // Gives the environment its name, and makes it ready. If another job was quicker, that job's is used.
  Result<Kept> publish(Unpacking unpacking, const std::string& digest, const ArchiveState& archive,
                       const std::string& job) const;

  // Removes what nobody uses: what interrupted jobs left, and environments whose last use was an hour ago.
  void remove_old(const std::string& spared) const;
  // Removes the environment unless somebody uses it, or another job has wanted it since.
  void remove(const std::string& digest, const std::string& job) const;

 private:
  explicit Environments(std::string folder) : folder_(std::move(folder)) {}
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void remove_locked(const std::string& name) const;
  Status write_record(const std::string& digest, const ArchiveState& archive, const std::string& prefix) const;
  std::string folder_;
};

}  // namespace hvd::launcher::staging
