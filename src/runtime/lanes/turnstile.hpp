#pragma once
// The one order in which a rank launches the batches of all its lanes on one kind of device: that of the log. Kernels
// of two communicators that two ranks launch in different orders can wait for each other until the job is killed.
//
//  1. Each batch that is queued in a lane of the device gets a place.
//  2. A batch begins when all earlier places have passed.
//  3. Its place passes when nothing of the batch is left to be launched on a device link (Task::has_launched), or when
//     the batch has failed. Whatever it still does on the host does not hold the others.
#include <algorithm>
#include <vector>

#include "base/ids.hpp"

namespace hvd::runtime {

class Turnstile {
 public:
  // Batches are queued in the order of the log.
  void queue(Sequence batch) { waiting_.push_back(batch.value); }
  bool is_open_for(Sequence batch) const { return waiting_.front() == batch.value; }
  void pass(Sequence batch) { waiting_.erase(std::ranges::find(waiting_, batch.value)); }
  void clear() { waiting_.clear(); }

 private:
  std::vector<decltype(Sequence::value)> waiting_;  // few, so that erasing the first is cheap
};

}  // namespace hvd::runtime
