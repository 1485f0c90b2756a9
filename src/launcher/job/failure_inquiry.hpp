#pragma once
// Finds the failure that caused the others. The first failure that an agent reports may be the consequence of an
// earlier failure on another host. Therefore all agents are asked what they know before a cause is named.
#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "launcher/job/alarm.hpp"
#include "launcher/job/first_failure.hpp"
#include "launcher/job/host_links.hpp"

namespace hvd::launcher {

class FailureInquiry {
 public:
  explicit FailureInquiry(HostLinks& hosts) : hosts_(hosts) {}  // the hosts must outlive this object
  void add(const HostLink& host, FirstFailure failure);         // the first call opens the inquiry
  // Returns the cause once all agents have answered, or once the time for answers is over.
  std::optional<FirstFailure> conclusion() const;
  std::chrono::milliseconds left() const { return std::min(answers_by_.left(), shown_by_.left()); }

 private:
  HostLinks& hosts_;
  std::vector<FirstFailure> failures_;
  Alarm answers_by_, shown_by_;
};

}  // namespace hvd::launcher
