#pragma once
// The process sets of a job, as the log reports them: the same on all ranks at the same record.  An id is never given
// twice, so late words about a removed set are recognised. Users know a set by its number, which is given again: freed
// ones first, in the order in which they became free.
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace hvd::runtime {

// The ops of the world by which the ranks agree to add or remove a set have these names.
inline constexpr const char* add_set_name = "horovod.process_set.add";
inline constexpr const char* remove_set_name = "horovod.process_set.remove";

struct ProcessSet {
  ProcessSetId id;
  int number = 0;
  std::vector<Rank> ranks;  // ascending
};

class ProcessSets {
 public:
  explicit ProcessSets(int world_size);

  const ProcessSet& world() const { return sets_.begin()->second; }
  const ProcessSet* find(ProcessSetId id) const;
  const ProcessSet* numbered(int number) const;
  const ProcessSet* of(std::span<const Rank> ranks) const;  // ascending
  const std::map<ProcessSetId, ProcessSet>& all() const { return sets_; }

  // The next set gets this id.
  ProcessSetId next_id() const { return ProcessSetId{next_id_}; }
  const ProcessSet& add(std::vector<Rank> ranks);
  void remove(ProcessSetId id);

 private:
  std::map<ProcessSetId, ProcessSet> sets_;
  std::deque<int> free_numbers_;
  int next_number_ = 1;
  std::int32_t next_id_ = 1;
};

// "process set 3 (ranks 0, 2, 4)"
std::string describe(const ProcessSet& set);

}  // namespace hvd::runtime
