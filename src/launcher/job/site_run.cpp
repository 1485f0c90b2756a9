#include "launcher/job/site_run.hpp"

#include <sys/wait.h>

namespace hvd::launcher {

namespace {

// If a signal ended the rank, a launcher exits as a shell does. Returns the wait status of the rank from the wait
// status of the launcher.
int status_of_a_rank(int status) {
  bool by_signal = WIFEXITED(status) && WEXITSTATUS(status) > 128 && WEXITSTATUS(status) < 128 + 32;
  return by_signal ? WEXITSTATUS(status) - 128 : status;
}

}  // namespace

void SiteRun::add(const Output& output) {
  output_.add(output, print_, say_);
  // After the end of all ranks the launcher may still pass on much output, so only silence is a reason to give up.
  if (output_.have_all_ended() || (!overdue_at_.is_set() && output_.failure())) overdue_at_.set(patience_);
}

bool SiteRun::is_overdue() {
  // While the reader of our own output is slow, the silence does not come from the launcher.
  if (overdue_at_.has_rung() && output_.have_all_ended() && console_.has_unsent()) overdue_at_.set(patience_);
  return overdue_at_.has_rung();
}

void SiteRun::give_up() {
  cause_ = output_.failure();
  console_.say(std::string(dialect_.name) + " has not ended after " + (cause_ ? "a rank failed" : "all ranks ended") +
               ": horovodrun ends it now");
  end_ = Exited{};
  end_->wait_status = cause_ ? 1 << 8 : 0;  // used if the rank's own end is not known
}

void SiteRun::finish() {
  output_.finish(print_, say_);
}

SiteRun::Outcome SiteRun::outcome() {
  if (!end_ || end_->wait_status == 0) return {};
  int status = end_->wait_status;
  if (auto failure = cause_ ? cause_ : output_.failure()) {
    if (failure->end.wait_status == 0) failure->end.wait_status = status_of_a_rank(status);
    if (failure->rank.value >= 0) console_.printer().say(exit_code_line(*failure));
    return {std::move(failure), 0};
  }
  const std::string& last = output_.last_line();
  console_.say(std::string(dialect_.name) + " " + describe_end(status) +
               (last.empty() ? "" : "; its last message: " + last));
  return {std::nullopt, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)};
}

}  // namespace hvd::launcher
