#include "native/posix/files/file_in_place.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/text/size_text.hpp"
#include "native/posix/files/folder.hpp"
#include "native/posix/machine/host_identity.hpp"

namespace hvd::posix {
namespace {

Error refused(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text)};
}

std::string beginning_of_temporaries(const std::string& path) {
  return "." + path.substr(path.rfind('/') + 1) + ".writing-";
}

// Removes temporary files of processes that were killed while they wrote this file.
void remove_leftovers(const std::string& path) {
  std::string folder = folder_of(path);
  std::string beginning = beginning_of_temporaries(path);
  for (const std::string& name : names_in(folder))
    if (name.starts_with(beginning)) ::unlink((folder + "/" + name).c_str());
}

Error no_room(const std::string& path, std::uint64_t bytes, int reason) {
  std::string room;
  struct statvfs about {};
  if (::statvfs(folder_of(path).c_str(), &about) == 0)
    room =
        ", " + size_text(static_cast<double>(about.f_bavail) * static_cast<double>(about.f_frsize)) + " are free there";
  return system_error(path + ": no room for " + size_text(bytes) + room +
                          (reason == EDQUOT ? "; your quota is used up" : "") +
                          ". What was there before is untouched; remove something, or write elsewhere",
                      reason);
}

}  // namespace

std::string folder_of(const std::string& path) {
  std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status sync_folder_of(const std::string& path) {
  std::string folder = folder_of(path);
  FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) return system_error("the folder " + folder + " cannot be opened", errno);
  // Some network file systems cannot do this. There the rename is as durable as possible.
  if (::fsync(opened.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EBADF)
    return system_error("the folder " + folder + " cannot be made durable", errno);
  return {};
}

Status read_at(int descriptor, Bytes bytes, std::uint64_t offset, const std::string& path) {
  while (!bytes.empty()) {
    ssize_t got = ::pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read " + path, errno);
    if (got == 0) return Error(ErrorCode::system, path + " ends at byte " + std::to_string(offset));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

FileInPlace::FileInPlace(std::string path, std::string temporary, FileDescriptor file)
    : path_(std::move(path)), temporary_(std::move(temporary)), file_(std::move(file)) {}

FileInPlace::~FileInPlace() {
  if (file_) ::unlink(temporary_.c_str());
}

Status FileInPlace::check_place(const std::string& path) {
  if (path.empty()) return refused("the path of the file is empty");
  if (path.back() == '/') return refused(path + " names a folder; the path of a file was expected");
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0) {
    if (S_ISDIR(about.st_mode))
      return refused(path + " is a folder; give the path of a file in it, or let a Checkpointer keep its files there");
    if (!S_ISREG(about.st_mode)) return refused(path + " is a device, socket or pipe, not a file; give another path");
  } else if (errno != ENOENT) {
    return system_error(path + " cannot be looked at", errno);
  }
  std::string folder = folder_of(path);
  if (::stat(folder.c_str(), &about) != 0) {
    int reason = errno;
    return system_error(
        "the folder " + folder + " is not there on host " + host_name() + "; make it, or give another path", reason);
  }
  if (!S_ISDIR(about.st_mode)) return refused(folder + " is no folder, so there can be no " + path);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return system_error("cannot write " + path + ": its folder does not allow new files", errno);
  return {};
}

Result<FileInPlace> FileInPlace::create(const std::string& given) {
  HVD_RETURN_IF_ERROR(check_place(given));
  // A symbolic link stays a link, and the file that it leads to is replaced.
  std::string path = end_of_links(given);
  remove_leftovers(path);
  std::string temporary =
      folder_of(path) + "/" + beginning_of_temporaries(path) + host_name() + "-" + std::to_string(::getpid());
  FileDescriptor file(::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file) {
    int reason = errno;
    if (reason == ENOSPC || reason == EDQUOT) return no_room(path, 0, reason);
    return system_error("cannot write " + path + ": its folder does not allow new files", reason);
  }
  return FileInPlace(path, std::move(temporary), std::move(file));
}

Status FileInPlace::reserve(std::uint64_t bytes) {
  // Beyond this limit the kernel sends SIGXFSZ. The signal ends a program that does not handle it.
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes)
    return no_room(path_, bytes, EFBIG);
  struct statvfs about {};
  if (::fstatvfs(file_.get(), &about) == 0 && about.f_blocks > 0 &&
      static_cast<double>(about.f_bavail) * static_cast<double>(about.f_frsize) < static_cast<double>(bytes))
    return no_room(path_, bytes, ENOSPC);
  int outcome = 0;
  do {
    outcome = ::fallocate(file_.get(), 0, 0, static_cast<off_t>(bytes));
  } while (outcome != 0 && errno == EINTR);
  if (outcome == 0) return {};
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) return no_room(path_, bytes, errno);
  return {};
}

Status FileInPlace::write(ConstBytes bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    ssize_t put = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && (errno == ENOSPC || errno == EDQUOT)) return no_room(path_, offset + bytes.size(), errno);
    if (put <= 0)
      return system_error("cannot write " + path_ + "; what was there before is untouched", put < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
  return {};
}

Status FileInPlace::read(Bytes bytes, std::uint64_t offset) const {
  return read_at(file_.get(), bytes, offset, temporary_);
}

void FileInPlace::start_writing_back(std::uint64_t offset, std::uint64_t bytes) noexcept {
  ::sync_file_range(file_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

// At any moment between these calls there is a whole file at `path`, or at the kept name.
Status FileInPlace::commit(const std::string& kept_suffix, const std::function<Status()>& may_replace) {
  if (::fsync(file_.get()) != 0) {
    int reason = errno;
    if (reason == ENOSPC || reason == EDQUOT) return no_room(path_, 0, reason);
    return system_error(path_ + " cannot be made durable; what was there before is untouched", reason);
  }
  if (may_replace) HVD_RETURN_IF_ERROR(may_replace());
  if (!kept_suffix.empty()) {
    std::string kept = path_ + kept_suffix;
    std::string second_name = temporary_ + "-kept";
    ::unlink(second_name.c_str());
    // On a file system without hard links, `path` is missing for a moment, but the old file stays under the kept name.
    bool is_linked = ::link(path_.c_str(), second_name.c_str()) == 0;
    if (!is_linked && errno != ENOENT && ::rename(path_.c_str(), kept.c_str()) != 0)
      return system_error("cannot keep " + path_ + " as " + kept, errno);
    if (is_linked && ::rename(second_name.c_str(), kept.c_str()) != 0)
      return system_error("cannot keep " + path_ + " as " + kept, errno);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    return system_error("cannot rename " + temporary_ + " to " + path_, errno);
  file_.reset();
  return sync_folder_of(path_);
}

}  // namespace hvd::posix
