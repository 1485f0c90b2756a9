#pragma once
// The environments that are unpacked on this node, in one folder of this user. Other jobs may add and remove
// environments at any time.
//
//   FOLDER/DIGEST/content/     the content of the archive with this digest
//   FOLDER/DIGEST/record       exists when the environment can be used; names the archive and the place of bin
//   FOLDER/DIGEST/last-use     names the last job that used the environment
//   FOLDER/unpacking-XXXXXX/   is renamed to DIGEST when it is complete
//
// A folder is in use while a process holds a lock (flock) on DIGEST or unpacking-XXXXXX. The lock is exclusive while
// the environment is made or removed, and shared while ranks use it. The kernel releases the lock when the process
// ends, however it ends.
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher::staging {

// Identifies the state of a file without reading it: tells whether it is still the file that was unpacked.
struct ArchiveState {
  std::string path;  // an absolute path
  std::uint64_t bytes = 0;
  std::string state;  // the file's inode, size, and times of the last changes
  static Result<ArchiveState> of(const std::string& path);
};

// An environment that may be used as long as the lock is held.
struct Kept {
  posix::FileDescriptor lock;
  std::string prefix;  // the folder that contains bin
};

// A folder into which an archive is being unpacked.
struct Unpacking {
  posix::FileDescriptor lock;
  std::string folder, content;
};

// Removes the folder with all in it, also where an archive has folders that may not be written to.
void remove_tree(const std::string& folder);

class Environments {
 public:
  // `parent` is the folder that the user named; if it is empty, TMPDIR or /tmp is used. Makes a folder in it. Fails if
  // that folder could belong to another user.
  static Result<Environments> in(const std::string& parent, const std::string& temporary_folder);
  const std::string& folder() const { return folder_; }
  std::uint64_t free_bytes() const;

  // Returns the digest of this archive if it is unpacked on this node; otherwise an empty text.
  std::string digest_of(const ArchiveState& archive) const;
  // Returns the environment; waits while another process makes it ready. Returns nothing if it is not on this node.
  std::optional<Kept> use(const std::string& digest) const;
  void note_use(const std::string& digest, const std::string& job) const;

  Result<Unpacking> begin() const;
  // Completes the environment and gives it its name. If another job was faster, the environment of that job is used.
  Result<Kept> publish(Unpacking unpacking, const std::string& digest, const ArchiveState& archive,
                       const std::string& job) const;

  // Removes what interrupted jobs left behind, and environments that were used last an hour ago or earlier. Does not
  // remove what is in use.
  void remove_old(const std::string& spared) const;
  // Removes the environment unless a process uses it or another job has used it since.
  void remove(const std::string& digest, const std::string& job) const;

 private:
  explicit Environments(std::string folder) : folder_(std::move(folder)) {}
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }
  void remove_locked(const std::string& name) const;
  Status write_record(const std::string& digest, const ArchiveState& archive, const std::string& prefix) const;
  std::string folder_;
};

}  // namespace hvd::launcher::staging
