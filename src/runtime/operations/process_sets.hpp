#pragma once
// The process sets of a job, as the log reports them. At the same record of the log they are equal on all ranks. An id
// is never given twice, so late messages about a removed set can be recognised. Users know a set by its number. The
// number of a removed set is given again; the number that became free first is given first.
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"

namespace hvd::runtime {

// The names of the ops of the world by which the ranks agree to add or remove a set.
inline constexpr const char* add_set_name = "horovod.process_set.add";
inline constexpr const char* remove_set_name = "horovod.process_set.remove";

struct ProcessSet {
  ProcessSetId id;
  int number = 0;
  std::vector<Rank> ranks;  // the ranks in ascending order
};

class ProcessSets {
 public:
  explicit ProcessSets(int world_size);

  const ProcessSet& world() const { return sets_.begin()->second; }
  const ProcessSet* find(ProcessSetId id) const;
  const ProcessSet* numbered(int number) const;
  const ProcessSet* of(std::span<const Rank> ranks) const;  // `ranks` must be ascending
  const std::map<ProcessSetId, ProcessSet>& all() const { return sets_; }

  // Returns the id that the next set will get.
  ProcessSetId next_id() const { return ProcessSetId{next_id_}; }
  const ProcessSet& add(std::vector<Rank> ranks);
  void remove(ProcessSetId id);

 private:
  std::map<ProcessSetId, ProcessSet> sets_;
  std::deque<int> free_numbers_;
  int next_number_ = 1;
  std::int32_t next_id_ = 1;
};

// The process sets as they were at one moment; the engine may replace them at the next. What a caller finds in them is
// valid as long as this object, so the object needs a name: with a temporary one, `sets()->all()` does not compile.
class CurrentSets {
 public:
  CurrentSets(std::shared_ptr<const ProcessSets> sets) : sets_(std::move(sets)) {}
  const ProcessSets* operator->() const& { return sets_.get(); }
  const ProcessSets* operator->() const&& = delete;

 private:
  std::shared_ptr<const ProcessSets> sets_;
};

// Returns text such as "process set 3 (ranks 0, 2, 4)".
std::string describe(const ProcessSet& set);
// Returns text such as "0, 2, 4"; of many ranks only the first.
std::string describe(std::span<const Rank> ranks);

// The shape of the op that adds a set: a bit for each rank of the world up to the set's last. A list of ranks would not
// fit into a request if the set is large.
std::vector<std::int64_t> bits_of(std::span<const Rank> ranks);
std::vector<Rank> ranks_in(std::span<const std::int64_t> bits);

}  // namespace hvd::runtime
