#include "launcher/failure_inquiry.hpp"

namespace hvd::launcher {
namespace {

constexpr std::chrono::milliseconds time_to_answer{1000};

}  // namespace

void FailureInquiry::add(const HostLink& host, FirstFailure failure) {
  bool is_first = failures_.empty();
  failure.host = host.name;
  failures_.push_back(std::move(failure));
  if (!is_first) return;
  answers_by_.set(time_to_answer);
  hosts_.ask_all();
}

std::optional<FirstFailure> FailureInquiry::conclusion() const {
  if (!is_open() || (hosts_.is_answer_awaited() && !answers_by_.has_rung())) return std::nullopt;
  return likely_cause(failures_);
}

}  // namespace hvd::launcher
