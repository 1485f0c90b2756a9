#include "launcher/site_run.hpp"

#include <signal.h>
#include <sys/wait.h>

namespace hvd::launcher {

void SiteRun::add(const Output& output) {
  output_.add(output, print_, say_);
  if (output_.failure() && !overdue_at_.is_set()) overdue_at_.set(patience_);
}

void SiteRun::give_up() {
  end_ = Exited{};
  end_->wait_status = SIGKILL;  // unless the rank's own end is known
}

void SiteRun::finish() {
  output_.finish(print_, say_);
}

SiteRun::Outcome SiteRun::outcome() {
  if (!end_ || end_->wait_status == 0) return {};
  int status = end_->wait_status;
  if (auto failure = output_.failure()) {
    if (failure->end.wait_status == 0) failure->end.wait_status = status;
    if (failure->rank.value >= 0) console_.printer().say(exit_code_line(*failure));
    return {std::move(failure), 0};
  }
  const std::string& last = output_.last_line();
  console_.say(std::string(dialect_.name) + " " + describe_end(status) +
               (last.empty() ? "" : "; the last that it said: " + last));
  return {std::nullopt, WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status)};
}

}  // namespace hvd::launcher
