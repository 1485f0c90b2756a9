#pragma once
// A moment to wake up at. Unlike a Deadline it keeps nobody from sleeping once it has passed.
#include <algorithm>
#include <chrono>
#include <optional>

#include "base/deadline.hpp"

namespace hvd::launcher {

class Alarm {
 public:
  void set(std::chrono::milliseconds span) { at_ = Clock::now() + span; }
  // To ring not before the span is over.
  void put_off(std::chrono::milliseconds span) {
    if (at_) at_ = std::max(*at_, Clock::now() + span);
  }
  void clear() { at_.reset(); }
  bool is_set() const { return at_.has_value(); }
  bool has_rung() const { return at_ && Clock::now() >= *at_; }
  // Until it rings; a very long time if it will not.
  std::chrono::milliseconds left() const {
    auto span = at_ ? std::chrono::ceil<std::chrono::milliseconds>(*at_ - Clock::now()) : std::chrono::milliseconds(0);
    return span.count() > 0 ? span : Deadline::never().left();
  }

 private:
  std::optional<Clock::time_point> at_;
};

}  // namespace hvd::launcher
