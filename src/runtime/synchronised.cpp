#include "runtime/synchronised.hpp"

#include <algorithm>
#include <vector>

namespace hvd::runtime {
namespace {

struct Reached {
  std::uint32_t runtime;
  ProcessSetId set;
  std::uint64_t record;
};

// The limit of the list. A thread that has used more runtimes and sets than this uses the oldest ones no longer.
constexpr std::size_t most_entries = 64;

std::vector<Reached>& of_this_thread() {
  thread_local std::vector<Reached> entries;
  return entries;
}

}  // namespace

void note_synchronised(std::uint32_t runtime, ProcessSetId set, std::uint64_t record) {
  std::vector<Reached>& entries = of_this_thread();
  for (Reached& it : entries)
    if (it.runtime == runtime && it.set == set) {
      it.record = std::max(it.record, record);
      return;
    }
  if (entries.size() == most_entries) entries.erase(entries.begin());
  entries.push_back({runtime, set, record});
}

std::uint64_t synchronised(std::uint32_t runtime, ProcessSetId set) {
  for (const Reached& it : of_this_thread())
    if (it.runtime == runtime && it.set == set) return it.record;
  return 0;
}

}  // namespace hvd::runtime
