#pragma once
// A file that takes its place when it is whole: written under another name in the same folder, made durable, renamed.
#include <cstdint>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::posix {

class FileInPlace {
 public:
  // Refuses by name what can be no file: a folder, a device, a folder that is missing or cannot be written to. What an
  // earlier process left of the same file under its temporary name is removed: nobody else may write it now.
  static Result<FileInPlace> create(const std::string& path);

  FileInPlace(FileInPlace&& other) noexcept = default;
  FileInPlace& operator=(FileInPlace&&) = delete;
  ~FileInPlace();

  const std::string& temporary_path() const noexcept { return temporary_; }
  int descriptor() const noexcept { return file_.get(); }

  // Takes the space beforehand, so that a full disk or quota shows now. File systems that cannot do it are believed.
  Status reserve(std::uint64_t bytes);
  Status write(ConstBytes bytes, std::uint64_t offset);
  Status read(Bytes bytes, std::uint64_t offset) const;
  // Starts what the disk has to do with these bytes; no promise.
  void start_writing_back(std::uint64_t offset, std::uint64_t bytes) noexcept;

  // Durable and in its place when it returns. What was there is kept as path + `kept_suffix`, in place of what is
  // there; empty: nothing is kept. If the power fails anywhere in between, one of them is whole.
  Status commit(const std::string& kept_suffix);

 private:
  FileInPlace(std::string path, std::string temporary, FileDescriptor file);
  std::string path_, temporary_;
  FileDescriptor file_;
};

// What is in the folder is so after a power failure, too.
Status sync_folder_of(const std::string& path);
// "." for a path without a folder.
std::string folder_of(const std::string& path);

// Fills `bytes`; an end of the file before that is an error.
Status read_at(int descriptor, Bytes bytes, std::uint64_t offset, const std::string& path);

}  // namespace hvd::posix
