#include "launcher/job/failure_inquiry.hpp"

#include <sys/wait.h>

namespace hvd::launcher {
namespace {

constexpr std::chrono::milliseconds time_for_answers{1000};
// When a rank is killed, the kernel may tell other ranks of its end before the rank's parent can see the end.
constexpr std::chrono::milliseconds time_to_show{200};

}  // namespace

void FailureInquiry::add(const HostLink& host, FirstFailure failure) {
  bool is_first = failures_.empty();
  failure.host = host.name;
  failures_.push_back(std::move(failure));
  if (!is_first) return;
  answers_by_.set(time_for_answers);
  shown_by_.set(time_to_show);
  hosts_.ask_all();
}

std::optional<FirstFailure> FailureInquiry::conclusion() const {
  if (failures_.empty() || (hosts_.is_answer_awaited() && !answers_by_.has_rung())) return std::nullopt;
  const FirstFailure& cause = likely_cause(failures_);
  bool may_follow_from_another = cause.kind == FirstFailure::Kind::ended && WIFEXITED(cause.end.wait_status);
  if (may_follow_from_another && !shown_by_.has_rung()) return std::nullopt;
  return cause;
}

}  // namespace hvd::launcher
