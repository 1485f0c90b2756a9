#pragma once
// The stages of a batch on a device that have not ended, as its task has noted them, and when each began and ended.
//
// A stage began when it was queued, when its part had ended the stage before it, and when the part before it had ended
// the same stage, whichever was last: stages of one kind share a stream. A stage on the host began when the host says.
// The end of a stage on the device is when the host has seen it, but not after the host took the part on.
#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/stages.hpp"
#include "devices/device.hpp"

namespace hvd::runtime {

class StagesOfBatch {
 public:
  struct Ended {
    StageOnDevice stage;
    Clock::time_point begin, end;
  };

  void clear();
  bool has_begun() const { return taken_ > 0; }
  // Takes what the task has noted since the last call.
  void take(std::span<const StageOnDevice> noted);
  // When the batch's first stage began.
  Clock::time_point began_at() const { return began_at_; }
  // Asks the device for the oldest stage of each part. Returns those that have ended, in the order of each part. They
  // are valid until the next call.
  std::span<const Ended> look(devices::Device& device);
  // The word is posted when the oldest stage of a part ends.
  void arm(devices::Device& device, posix::WaitWord* wake) const;

 private:
  using Parts = std::uint64_t;  // a bit for each part
  static_assert(NotedStages::most_parts <= 64);
  void end(std::size_t index, Clock::time_point now);

  std::vector<StageOnDevice> open_;
  std::vector<Ended> ended_;
  std::size_t taken_ = 0;
  Clock::time_point began_at_{};
  std::array<Clock::time_point, NotedStages::most_parts> end_of_part_{};
  std::map<std::pair<StageOnDevice::What, Verb>, Clock::time_point> end_of_kind_;
};

}  // namespace hvd::runtime
