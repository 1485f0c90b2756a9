#pragma once
// A moment to wake up at. Once it has passed it no longer keeps its owner from sleeping, unlike a Deadline.
#include <algorithm>
#include <chrono>
#include <optional>

#include "base/deadline.hpp"

namespace hvd::launcher {

class Alarm {
 public:
  void set(std::chrono::milliseconds span) { at_ = Clock::now() + span; }
  // If it is set, it rings only after the span.
  void put_off(std::chrono::milliseconds span) {
    if (at_) at_ = std::max(*at_, Clock::now() + span);
  }
  void clear() { at_.reset(); }
  bool is_set() const { return at_.has_value(); }
  bool has_rung() const { return at_ && Clock::now() >= *at_; }
  // The time until it rings; very long if it is not set or has rung.
  std::chrono::milliseconds left() const {
    auto span = at_ ? std::chrono::ceil<std::chrono::milliseconds>(*at_ - Clock::now()) : std::chrono::milliseconds(0);
    return span.count() > 0 ? span : Deadline::never().left();
  }

 private:
  std::optional<Clock::time_point> at_;
};

}  // namespace hvd::launcher
