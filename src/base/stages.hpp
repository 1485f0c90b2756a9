#pragma once
// What a task does with tensors on a device, in stages, for the timeline. The work is cut into parts: the stages of a
// part follow each other, those of different parts overlap.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/tensor_view.hpp"
#include "base/verb.hpp"

namespace hvd {

struct StageOnDevice {
  enum class What : std::uint8_t {
    waits,      // for the tensors
    packs,      // the tensors to one piece of memory
    travels,    // over links of the device, or of the host
    to_host,    // a copy to host memory
    from_host,  // the copy back
    unpacks,
  };
  What what = What::waits;
  std::uint8_t part = 0;
  Verb verb = Verb::allreduce;      // of a stage that travels
  std::string_view transport = {};  // the same
  Clock::time_point since = {};     // when the host queued it, or began it
  Event end = {};                   // the event after it; a stage on the host has none (token 0), but
  Clock::time_point until = {};     // when it ended
  bool is_on_host() const { return end.token == 0; }
};

// The stages that a task has noted since it was restarted. If they are not wanted, not even the clock is read.
class NotedStages {
 public:
  // The parts that come later are not noted: a timeline of these is long enough.
  static constexpr std::int64_t most_parts = 64;

  void want(bool wanted) { is_wanted_ = wanted; }
  bool are_wanted() const { return is_wanted_; }
  void clear() { stages_.clear(); }
  std::size_t size() const { return stages_.size(); }
  std::span<const StageOnDevice> list() const { return stages_; }
  // The time from which on a stage may run. It is read before the stage is queued.
  Clock::time_point now() const { return is_wanted_ ? Clock::now() : Clock::time_point{}; }

  void add(StageOnDevice::What what, std::int64_t part, Clock::time_point since, Event end) {
    if (end.token != 0) add(part, {.what = what, .since = since, .end = end});
  }
  // Elements have travelled: over links of the device until the event comes, or over links of the host until now.
  void add_travel(std::string_view transport, Verb verb, std::int64_t part, Clock::time_point since, Event end = {}) {
    add(part, {StageOnDevice::What::travels, 0, verb, transport, since, end, now()});
  }

 private:
  void add(std::int64_t part, StageOnDevice stage) {
    if (!is_wanted_ || part >= most_parts) return;
    stage.part = static_cast<std::uint8_t>(part);
    stages_.push_back(stage);
  }

  bool is_wanted_ = false;
  std::vector<StageOnDevice> stages_;
};

}  // namespace hvd
