#pragma once
// Tells a user who waits for many hosts how many of them have answered.
#include <optional>
#include <string>

#include "base/deadline.hpp"
#include "launcher/job/host_links.hpp"

namespace hvd::launcher {

class HostProgress {
 public:
  explicit HostProgress(Clock::time_point begin) : next_(begin + first) {}
  // Returns a line if it is time for one. While nothing changes, a line comes only now and then.
  std::optional<std::string> look(const HostLinks& hosts, Clock::time_point now);

 private:
  static constexpr std::chrono::seconds first{2}, again{2}, unchanged{10};
  Clock::time_point next_;
  std::size_t told_ = 0;  // the number of hosts in the last line
  Clock::time_point told_at_{};
};

}  // namespace hvd::launcher
