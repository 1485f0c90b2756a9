#pragma once
// A file that takes its place when it is whole. It is written under another name in the same folder, made durable and
// then renamed.
#include <cstdint>
#include <functional>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::posix {

class FileInPlace {
 public:
  // Fails, with the name in the error, for a path that can be no file: a folder, a device, a folder that is missing or
  // cannot be written to. Removes what an earlier process left of the same file under its temporary name; nobody else
  // may be writing it now.
  static Result<FileInPlace> create(const std::string& path);
  // Looks at the path, and makes nothing: fails as create() does for a path that can be no file.
  static Status check_place(const std::string& path);

  FileInPlace(FileInPlace&& other) noexcept = default;
  FileInPlace& operator=(FileInPlace&&) = delete;
  ~FileInPlace();

  const std::string& temporary_path() const noexcept { return temporary_; }
  int descriptor() const noexcept { return file_.get(); }

  // Takes the space beforehand, so that a full disk or quota is noticed now. If a file system cannot do this, the call
  // succeeds.
  Status reserve(std::uint64_t bytes);
  Status write(ConstBytes bytes, std::uint64_t offset);
  Status read(Bytes bytes, std::uint64_t offset) const;
  // Lets the disk begin to write these bytes. This promises nothing.
  void start_writing_back(std::uint64_t offset, std::uint64_t bytes) noexcept;

  // When it returns, the file is durable and in its place. The file that was in the place is kept as path +
  // `kept_suffix`, and replaces an older one of that name; empty: nothing is kept. If the power fails at any moment,
  // one of the files is whole. `may_replace` is asked when the file is durable, just before it takes its place; if that
  // fails, nothing is replaced.
  Status commit(const std::string& kept_suffix, const std::function<Status()>& may_replace = {});

 private:
  FileInPlace(std::string path, std::string temporary, FileDescriptor file);
  std::string path_, temporary_;
  FileDescriptor file_;
};

// Makes the names in the folder of `path` durable: they are the same after a power failure.
Status sync_folder_of(const std::string& path);
// Returns "." for a path without a folder.
std::string folder_of(const std::string& path);

// Fills `bytes`. Fails if the file ends before that.
Status read_at(int descriptor, Bytes bytes, std::uint64_t offset, const std::string& path);

}  // namespace hvd::posix
