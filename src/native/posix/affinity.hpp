#pragma once
// Sets of processors, by the numbers that the operating system gives them, and the masks of threads.
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hvd::posix {

// Any number of processors; masks compare by content.
class CpuMask {
 public:
  CpuMask() = default;
  // "0-3,8,10-11", the kernel's list form; blanks and a newline at the end are allowed.
  static Result<CpuMask> parse(std::string_view list);
  static CpuMask range(int first, int last);

  void set(int cpu);
  void clear(int cpu);
  bool test(int cpu) const noexcept;
  int count() const noexcept;
  bool empty() const noexcept { return words_.empty(); }
  int first() const noexcept { return next(-1); }  // -1: none
  int last() const noexcept;
  int next(int after) const noexcept;  // the lowest one above `after`; -1: none
  bool contains(const CpuMask& other) const noexcept;
  bool overlaps(const CpuMask& other) const noexcept;
  std::string to_string() const;

  CpuMask& operator|=(const CpuMask& other);
  CpuMask& operator&=(const CpuMask& other);
  CpuMask& operator-=(const CpuMask& other);
  friend CpuMask operator|(CpuMask a, const CpuMask& b) { return a |= b; }
  friend CpuMask operator&(CpuMask a, const CpuMask& b) { return a &= b; }
  friend CpuMask operator-(CpuMask a, const CpuMask& b) { return a -= b; }
  friend bool operator==(const CpuMask&, const CpuMask&) = default;

  // 64 processors each, lowest first; the last word is not zero.
  const std::vector<std::uint64_t>& words() const noexcept { return words_; }
  static CpuMask from_words(std::vector<std::uint64_t> words);

 private:
  void trim();
  std::vector<std::uint64_t> words_;
};

// The processors that a thread may run on; 0 is the calling thread. Also for machines of more than 1024 processors.
Result<CpuMask> affinity(pid_t thread = 0);
// Binds the calling thread, and the threads and processes that it starts from now on. On failure errno says why.
Status set_affinity(const CpuMask& mask);

}  // namespace hvd::posix
