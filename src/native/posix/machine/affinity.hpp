#pragma once
// Sets of processors, by the numbers that the operating system gives them; and the sets on which threads may run.
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hvd::posix {

// A set of any number of processors. Masks are compared by their content.
class CpuMask {
 public:
  CpuMask() = default;
  // Reads "0-3,8,10-11", the kernel's form of a list. Blanks and a newline at the end are allowed.
  static Result<CpuMask> parse(std::string_view list);
  static CpuMask range(int first, int last);

  void set(int cpu);
  void clear(int cpu);
  bool test(int cpu) const noexcept;
  int count() const noexcept;
  bool empty() const noexcept { return words_.empty(); }
  int first() const noexcept { return next(-1); }  // the lowest processor; -1: the set is empty
  int last() const noexcept;
  int next(int after) const noexcept;  // the lowest processor above `after`; -1: none
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

  // Each word has 64 processors, the lowest first. The last word is not zero.
  const std::vector<std::uint64_t>& words() const noexcept { return words_; }
  static CpuMask from_words(std::vector<std::uint64_t> words);

 private:
  void trim();
  std::vector<std::uint64_t> words_;
};

// Returns the processors on which a thread may run; 0 is the calling thread. Works also with more than 1024 processors.
Result<CpuMask> affinity(pid_t thread = 0);
// Binds a thread, and the threads and processes that it starts later; 0 is the calling thread. On failure errno tells
// the reason.
Status set_affinity(const CpuMask& mask, pid_t thread = 0);

// Returns the processors on which any thread of this process may run. An OpenMP that binds its threads narrows the mask
// of the main thread, too, so that one thread alone does not tell what the process was given.
Result<CpuMask> affinity_of_all_threads();
// Binds every thread of this process whose mask is `from`. Threads with another mask were bound by the program and stay
// as they are. Threads that are started meanwhile are bound, too.
Status bind_threads(const CpuMask& from, const CpuMask& to);

}  // namespace hvd::posix
