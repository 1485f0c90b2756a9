#pragma once
// Whole pages of memory between pages without access rights. An access outside of the memory ends the program.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <utility>

namespace hvd::testing {

class GuardedMemory {
 public:
  // `bytes` zeroed bytes, rounded up to whole pages.
  explicit GuardedMemory(std::size_t bytes) : bytes_(bytes == 0 ? page() : (bytes + page() - 1) / page() * page()) {
    void* mapped = ::mmap(nullptr, bytes_ + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    begin_ = static_cast<std::byte*>(mapped) + page();
    protect(PROT_READ | PROT_WRITE);
  }
  ~GuardedMemory() {
    if (begin_ != nullptr) ::munmap(begin_ - page(), bytes_ + 2 * page());
  }
  GuardedMemory(GuardedMemory&& other) noexcept
      : begin_(std::exchange(other.begin_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  GuardedMemory& operator=(GuardedMemory&& other) noexcept {
    std::swap(begin_, other.begin_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* begin() const { return begin_; }
  std::byte* end() const { return begin_ + bytes_; }  // the byte at this address must not be touched
  std::size_t bytes() const { return bytes_; }
  // Sets the allowed access from now on: PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE.
  void protect(int protection) const {
    if (::mprotect(begin_, bytes_, protection) != 0) std::abort();
  }
  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

 private:
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace hvd::testing
