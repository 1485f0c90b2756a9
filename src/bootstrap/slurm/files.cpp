#include "bootstrap/slurm/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "native/posix/files/file_descriptor.hpp"

namespace hvd::bootstrap {

bool is_of_one_machine(const std::string& folder) {
  struct statfs status {};
  if (::statfs(folder.c_str(), &status) != 0) return false;
  switch (static_cast<unsigned long>(status.f_type)) {
    case 0x01021994:  // the number of the file system tmpfs
    case 0x858458f6:  // ramfs
    case 0xef53:      // ext2, ext3, ext4
    case 0x58465342:  // xfs
    case 0x9123683e:  // btrfs
    case 0x794c7630:  // overlayfs, which containers use
    case 0x73717368:  // squashfs
    case 0x2fc12fc1:  // zfs
    case 0xf2f52010:  // f2fs
      return true;
    default: return false;
  }
}

Result<Buffer> read_file(const std::string& path) {
  posix::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return system_error("cannot read " + path, errno);
  Buffer content;
  std::byte bytes[16 << 10];
  for (;;) {
    ssize_t got = ::read(file.get(), bytes, sizeof bytes);
    if (got == 0) return content;
    if (got < 0 && errno != EINTR) return system_error("cannot read " + path, errno);
    if (got > 0) content.insert(content.end(), bytes, bytes + got);
  }
}

Status write_file(const std::string& folder, const std::string& name, ConstBytes content) {
  std::string unfinished = folder + "/." + name;
  posix::FileDescriptor file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return system_error("cannot make " + unfinished, errno);
  while (!content.empty()) {
    ssize_t written = ::write(file.get(), content.data(), content.size());
    if (written < 0 && errno != EINTR) return system_error("cannot write " + unfinished, errno);
    if (written > 0) content = content.subspan(static_cast<std::size_t>(written));
  }
  // Some network file systems report a full disk only at the close.
  if (::close(file.release()) != 0) return system_error("cannot write " + unfinished, errno);
  if (::rename(unfinished.c_str(), (folder + "/" + name).c_str()) != 0)
    return system_error("cannot rename " + unfinished, errno);
  return {};
}

std::set<std::string> files_of(const std::string& folder) {
  std::set<std::string> names;
  std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(folder.c_str()), &::closedir);
  if (listing == nullptr) return names;
  while (const dirent* entry = ::readdir(listing.get())) names.insert(entry->d_name);  // NOLINT(concurrency-mt-unsafe)
  return names;
}

void remove_files_of(const std::string& folder) {
  for (const std::string& file : files_of(folder))
    if (file != "." && file != "..") ::unlink((folder + "/" + file).c_str());
}

}  // namespace hvd::bootstrap
