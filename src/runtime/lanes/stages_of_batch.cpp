#include "runtime/lanes/stages_of_batch.hpp"

#include <algorithm>

namespace hvd::runtime {

void StagesOfBatch::clear() {
  if (taken_ == 0) return;
  open_.clear();
  taken_ = 0;
  end_of_part_ = {};
  end_of_kind_.clear();
}

void StagesOfBatch::take(std::span<const StageOnDevice> noted) {
  if (noted.size() <= taken_) return;
  if (taken_ == 0) began_at_ = noted.front().since;
  open_.insert(open_.end(), noted.begin() + static_cast<std::ptrdiff_t>(taken_), noted.end());
  taken_ = noted.size();
}

std::span<const StagesOfBatch::Ended> StagesOfBatch::look(devices::Device& device) {
  ended_.clear();
  if (open_.empty()) return ended_;
  Parts held_up = 0;
  Clock::time_point now{};
  const auto is_held_up = [&](const StageOnDevice& stage) {
    const Parts part = Parts{1} << stage.part;
    if ((held_up & part) != 0) return true;
    if (stage.is_on_host()) return false;
    const auto there = device.query(stage.end, nullptr);
    if (there && *there) return false;
    held_up |= part;
    return true;
  };
  std::size_t left = 0;
  for (std::size_t i = 0; i < open_.size(); ++i) {
    if (is_held_up(open_[i])) {
      open_[left++] = open_[i];
      continue;
    }
    if (now == Clock::time_point{}) now = Clock::now();
    end(i, now);
  }
  open_.resize(left);
  return ended_;
}

void StagesOfBatch::end(std::size_t index, Clock::time_point now) {
  const StageOnDevice& stage = open_[index];
  Clock::time_point& end_of_part = end_of_part_[stage.part];
  Clock::time_point begin = std::max(stage.since, end_of_part), end = stage.until;
  if (!stage.is_on_host()) {
    Clock::time_point& end_of_kind = end_of_kind_[{stage.what, stage.verb}];
    begin = std::max(begin, end_of_kind);
    const auto next = std::find_if(open_.begin() + static_cast<std::ptrdiff_t>(index) + 1, open_.end(),
                                   [&](const StageOnDevice& later) { return later.part == stage.part; });
    end = next != open_.end() && next->is_on_host() ? std::min(now, next->since) : now;
    end_of_kind = std::max(begin, end);
  }
  end_of_part = std::max(begin, end);
  ended_.push_back({stage, begin, end_of_part});
}

void StagesOfBatch::arm(devices::Device& device, posix::WaitWord* wake) const {
  Parts armed = 0;
  for (const StageOnDevice& stage : open_) {
    const Parts part = Parts{1} << stage.part;
    if ((armed & part) == 0 && !stage.is_on_host()) (void)device.query(stage.end, wake);  // look() finds out the rest
    armed |= part;
  }
}

}  // namespace hvd::runtime
