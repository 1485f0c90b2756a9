#include "native/posix/machine/affinity.hpp"

#include <sched.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <utility>

#include "base/text/number.hpp"
#include "native/posix/files/folder.hpp"

namespace hvd::posix {
namespace {

constexpr int bits = 64;
constexpr int largest_cpu = (1 << 20) - 1;  // far above any kernel's NR_CPUS; bounds what a malformed list can allocate

std::size_t word_of(int cpu) {
  return static_cast<std::size_t>(cpu) / bits;
}
std::uint64_t bit_of(int cpu) {
  return std::uint64_t{1} << (cpu % bits);
}

constexpr std::size_t first_try_words = 16;  // room for 1024 processors
constexpr std::size_t largest_try_words = 16384;

}  // namespace

Result<CpuMask> CpuMask::parse(std::string_view list) {
  while (!list.empty() && (list.back() == '\n' || list.back() == ' ')) list.remove_suffix(1);
  auto malformed = [&](std::string_view part) {
    return Error(ErrorCode::invalid_argument, "expected a list of processors such as \"0-3,8\", found \"" +
                                                  std::string(list) + "\" (at \"" + std::string(part) + "\")");
  };
  CpuMask mask;
  std::string_view rest = list;
  while (!rest.empty()) {
    std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(part.size());
    if (!rest.empty() && (rest.remove_prefix(1), rest.empty())) return malformed(",");
    std::string_view left = part;
    auto first = take_number<int>(left), last = first;
    if (left.starts_with('-')) last = number_in<int>(left.substr(1));
    else if (!left.empty()) return malformed(part);
    if (!first || *first < 0 || !last || *last < *first || *last > largest_cpu) return malformed(part);
    for (int cpu = *first; cpu <= *last; ++cpu) mask.set(cpu);
  }
  return mask;
}

CpuMask CpuMask::range(int first, int last) {
  CpuMask mask;
  for (int cpu = first; cpu <= last; ++cpu) mask.set(cpu);
  return mask;
}

CpuMask CpuMask::from_words(std::vector<std::uint64_t> words) {
  CpuMask mask;
  mask.words_ = std::move(words);
  mask.trim();
  return mask;
}

void CpuMask::trim() {
  while (!words_.empty() && words_.back() == 0) words_.pop_back();
}

void CpuMask::set(int cpu) {
  if (word_of(cpu) >= words_.size()) words_.resize(word_of(cpu) + 1);
  words_[word_of(cpu)] |= bit_of(cpu);
}

void CpuMask::clear(int cpu) {
  if (word_of(cpu) < words_.size()) words_[word_of(cpu)] &= ~bit_of(cpu);
  trim();
}

bool CpuMask::test(int cpu) const noexcept {
  return cpu >= 0 && word_of(cpu) < words_.size() && (words_[word_of(cpu)] & bit_of(cpu)) != 0;
}

int CpuMask::count() const noexcept {
  int sum = 0;
  for (std::uint64_t word : words_) sum += std::popcount(word);
  return sum;
}

int CpuMask::last() const noexcept {
  if (words_.empty()) return -1;
  return static_cast<int>(words_.size()) * bits - 1 - std::countl_zero(words_.back());
}

int CpuMask::next(int after) const noexcept {
  int from = after + 1;
  for (std::size_t index = word_of(from); index < words_.size(); ++index) {
    std::uint64_t word = words_[index];
    if (index == word_of(from)) word &= ~std::uint64_t{0} << (from % bits);
    if (word != 0) return static_cast<int>(index) * bits + std::countr_zero(word);
  }
  return -1;
}

bool CpuMask::contains(const CpuMask& other) const noexcept {
  if (other.words_.size() > words_.size()) return false;
  for (std::size_t i = 0; i < other.words_.size(); ++i)
    if ((other.words_[i] & ~words_[i]) != 0) return false;
  return true;
}

bool CpuMask::overlaps(const CpuMask& other) const noexcept {
  for (std::size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i)
    if ((words_[i] & other.words_[i]) != 0) return true;
  return false;
}

std::string CpuMask::to_string() const {
  std::string text;
  for (int cpu = first(); cpu >= 0;) {
    int end = cpu;
    while (test(end + 1)) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(cpu);
    if (end > cpu) text.append("-").append(std::to_string(end));
    cpu = next(end);
  }
  return text;
}

CpuMask& CpuMask::operator|=(const CpuMask& other) {
  if (other.words_.size() > words_.size()) words_.resize(other.words_.size());
  for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  return *this;
}

CpuMask& CpuMask::operator&=(const CpuMask& other) {
  if (words_.size() > other.words_.size()) words_.resize(other.words_.size());
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
  trim();
  return *this;
}

CpuMask& CpuMask::operator-=(const CpuMask& other) {
  for (std::size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) words_[i] &= ~other.words_[i];
  trim();
  return *this;
}

Result<CpuMask> affinity(pid_t thread) {
  // The kernel returns EINVAL until the buffer has room for the number of processors for which the kernel was built.
  for (std::size_t size = first_try_words; size <= largest_try_words; size *= 2) {
    std::vector<std::uint64_t> words(size);
    if (::sched_getaffinity(thread, size * sizeof(std::uint64_t), reinterpret_cast<cpu_set_t*>(words.data())) == 0)
      return CpuMask::from_words(std::move(words));
    if (errno != EINVAL) break;
  }
  return system_error("cannot read the processor mask of thread " + std::to_string(thread), errno);
}

Status set_affinity(const CpuMask& mask, pid_t thread) {
  const std::vector<std::uint64_t>& words = mask.words();
  auto* set = reinterpret_cast<const cpu_set_t*>(words.data());
  if (mask.empty()) return Error(ErrorCode::invalid_argument, "a thread cannot be bound to no processor at all");
  if (::sched_setaffinity(thread, words.size() * sizeof(std::uint64_t), set) == 0) return {};
  int why = errno;
  Error error = system_error("cannot bind to processors " + mask.to_string(), why);
  errno = why;
  return error;
}

namespace {

// The threads of this process with their masks. Those that end meanwhile are left out.
std::vector<std::pair<pid_t, CpuMask>> threads_with_masks() {
  std::vector<std::pair<pid_t, CpuMask>> threads;
  for (const std::string& name : names_in("/proc/self/task"))
    if (auto number = number_in<pid_t>(name))
      if (auto mask = affinity(*number)) threads.emplace_back(*number, std::move(*mask));
  return threads;
}

}  // namespace

Result<CpuMask> affinity_of_all_threads() {
  auto own = affinity();
  if (own)
    for (const auto& [thread, mask] : threads_with_masks()) *own |= mask;
  return own;
}

Status bind_threads(const CpuMask& from, const CpuMask& to) {
  if (from == to) return {};
  // A thread that was started while we looked has the mask of its parent. After a pass that finds no such thread there
  // is nobody left to start one.
  for (bool found = true; found;) {
    found = false;
    for (const auto& [thread, mask] : threads_with_masks()) {
      if (mask != from) continue;
      if (Status bound = set_affinity(to, thread); !bound) {
        if (errno == ESRCH) continue;
        return bound;
      }
      found = true;
    }
  }
  return {};
}

}  // namespace hvd::posix
