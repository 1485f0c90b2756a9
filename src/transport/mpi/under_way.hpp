#pragma once
// Counts the operations that MPI is working on, and knows when that number last changed.
#include <chrono>
#include <cstddef>

#include "base/deadline.hpp"

namespace hvd::transport::over_mpi {

class UnderWay {
 public:
  void begin(Clock::time_point now = Clock::now()) {
    ++count_;
    changed_ = now;
  }
  void end(Clock::time_point now = Clock::now()) {
    --count_;
    changed_ = now;
  }
  bool any() const { return count_ > 0; }
  // True while messages progress. Over sockets MPI reads and writes only while it is called, and a large message needs
  // several steps. A nap between two steps costs more than it saves. If nothing ends for two milliseconds, the peer is
  // busy with other work.
  bool is_moving(Clock::time_point now = Clock::now()) const {
    return any() && now - changed_ < std::chrono::milliseconds(2);
  }

 private:
  std::size_t count_ = 0;
  Clock::time_point changed_{};
};

}  // namespace hvd::transport::over_mpi
