#pragma once
// A point in time by which something must have happened.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace hvd {

using Clock = std::chrono::steady_clock;

// Converts the seconds of a setting.
inline std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

class Deadline {
 public:
  static Deadline after(std::chrono::milliseconds span) { return Deadline{Clock::now() + span}; }
  static Deadline never() { return Deadline{Clock::time_point::max()}; }

  bool passed() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
  // Returns the time that is left, never a negative one. For never() it is very long.
  std::chrono::milliseconds left() const {
    if (at_ == Clock::time_point::max()) return std::chrono::hours(24 * 365);
    auto span = std::chrono::duration_cast<std::chrono::milliseconds>(at_ - Clock::now());
    return span.count() < 0 ? std::chrono::milliseconds(0) : span;
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

// Naps between two looks at something that cannot wake this thread. Each nap is twice as long as the last one, up to a
// millisecond.
class Naps {
 public:
  void take() {
    std::this_thread::sleep_for(next_);
    next_ = std::min<std::chrono::microseconds>(next_ * 2, std::chrono::milliseconds(1));
  }

 private:
  std::chrono::microseconds next_{10};
};

}  // namespace hvd
