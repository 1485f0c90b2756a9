#pragma once
// Which failure the others follow from. What else has failed may have done so before the one that was heard of first,
// which may have failed because of it: so all agents are asked what they know before one is named.
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
  explicit FailureInquiry(HostLinks& hosts) : hosts_(hosts) {}  // which outlive this
  void add(const HostLink& host, FirstFailure failure);         // the first one opens the inquiry
  // The cause, once all have answered, or have had the time to.
  std::optional<FirstFailure> conclusion() const;
  std::chrono::milliseconds left() const { return std::min(answers_by_.left(), shown_by_.left()); }

 private:
  HostLinks& hosts_;
  std::vector<FirstFailure> failures_;
  Alarm answers_by_, shown_by_;
};

}  // namespace hvd::launcher
