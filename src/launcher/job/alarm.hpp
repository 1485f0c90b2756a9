#pragma once
// A time at which its owner wants to wake up. Unlike a Deadline, an alarm that has rung no longer keeps its owner from
// sleeping.
#include <algorithm>
#include <chrono>
#include <optional>

#include "base/deadline.hpp"

namespace hvd::launcher {

class Alarm {
 public:
  void set(std::chrono::milliseconds span) { at_ = Clock::now() + span; }
  // Delays an alarm that is set: it rings after `span` at the earliest.
  void put_off(std::chrono::milliseconds span) {
    if (at_) at_ = std::max(*at_, Clock::now() + span);
  }
  void clear() { at_.reset(); }
  bool is_set() const { return at_.has_value(); }
  bool has_rung() const { return at_ && Clock::now() >= *at_; }
  // Returns the time until the alarm rings; very long if it is not set or has rung.
  std::chrono::milliseconds left() const {
    auto span = at_ ? std::chrono::ceil<std::chrono::milliseconds>(*at_ - Clock::now()) : std::chrono::milliseconds(0);
    return span.count() > 0 ? span : Deadline::never().left();
  }

 private:
  std::optional<Clock::time_point> at_;
};

}  // namespace hvd::launcher
