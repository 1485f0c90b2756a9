#include "native/posix/memory/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "native/posix/memory/available_memory.hpp"

namespace hvd::posix {
namespace {

Error too_little(std::string_view label, std::size_t bytes, const std::string& found) {
  return Error(ErrorCode::out_of_memory,
               "shared memory \"" + std::string(label) + "\" needs " + std::to_string(bytes) + " bytes, but " + found +
                   "; run fewer ranks on this node, ask the batch system for more memory, or make the buffers smaller");
}

Result<void*> map_pages(int descriptor, std::size_t bytes, std::string_view label) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (data == MAP_FAILED) {
    int reason = errno;
    if (reason == ENOMEM) return too_little(label, bytes, "the kernel refused to map them (ENOMEM: see ulimit -v)");
    return system_error("mmap of " + std::to_string(bytes) + " bytes of shared memory", reason);
  }
  return data;
}

}  // namespace

Result<SharedMemory> SharedMemory::create(std::string_view label, std::size_t bytes) {
  SharedMemory memory;
  if (bytes == 0) return Error(ErrorCode::invalid_argument, "expected at least 1 byte of shared memory, found 0");
  // The available memory is checked before a page is touched: beyond a control group's limit the kernel kills the
  // process and reports no error.
  AvailableMemory available = available_memory();
  if (available.bytes < 0 || bytes > static_cast<std::size_t>(available.bytes)) {
    return too_little(label, bytes,
                      "only " + std::to_string(available.bytes) + " are left (" + available.limited_by + ")");
  }
  std::string name(label.substr(0, 240));  // the kernel's limit is 249
  memory.descriptor_ = FileDescriptor(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.descriptor_) return system_error("memfd_create(\"" + name + "\")", errno);
  int descriptor = memory.descriptor_.get();
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    if (errno == EFBIG) return too_little(label, bytes, "no file may be as long as that (EFBIG: see ulimit -f)");
    return system_error("ftruncate of shared memory to " + std::to_string(bytes) + " bytes", errno);
  }
  int outcome = 0;
  do outcome = ::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes));
  while (outcome != 0 && errno == EINTR);
  if (outcome != 0) {
    int reason = errno;
    if (reason == ENOSPC || reason == ENOMEM) return too_little(label, bytes, "the kernel has no more pages");
    if (reason != EOPNOTSUPP)
      return system_error("fallocate of " + std::to_string(bytes) + " bytes of shared memory", reason);
  }
  // Seals the file, so that nobody can shrink it while it is in use. Shrinking would cause a SIGBUS.
  ::fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  auto data = map_pages(descriptor, bytes, label);
  if (!data) return std::move(data.error());
  memory.data_ = *data;
  memory.bytes_ = bytes;
  return memory;
}

Result<SharedMemory> SharedMemory::map(const FileDescriptor& descriptor, std::size_t bytes) {
  struct stat status {};
  if (::fstat(descriptor.get(), &status) != 0) return system_error("fstat of shared memory", errno);
  if (static_cast<std::size_t>(status.st_size) != bytes) {
    return Error(ErrorCode::mismatch, "shared memory made by another rank has " + std::to_string(status.st_size) +
                                          " bytes, this rank expected " + std::to_string(bytes) +
                                          "; set the same HOROVOD_… variables on all ranks");
  }
  SharedMemory memory;
  auto data = map_pages(descriptor.get(), bytes, "mapped");
  if (!data) return std::move(data.error());
  memory.data_ = *data;
  memory.bytes_ = bytes;
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) ::munmap(data_, bytes_);
    descriptor_ = std::move(other.descriptor_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

bool make_private(void* pages, std::size_t bytes) noexcept {
  void* own = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) return false;
  std::memcpy(own, pages, bytes);
  // The pages are replaced in one step, so other threads always see them.
  if (::mremap(own, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, pages) != MAP_FAILED) return true;
  ::munmap(own, bytes);
  return false;
}

}  // namespace hvd::posix
