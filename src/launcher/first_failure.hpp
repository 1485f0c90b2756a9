#pragma once
// Why a job failed: what is said about it at the end, and the exit code.
#include <string>
#include <vector>

#include "launcher/messages.hpp"

namespace hvd::launcher {

struct FirstFailure {
  enum class Kind { ended, not_started, asked_for_end };
  Kind kind = Kind::ended;
  Rank rank;
  std::string host;
  int process = 0;
  Exited end;        // ended
  std::string text;  // not_started: what failed; asked_for_end: the reason given
  int code = 1;      // not_started, asked_for_end
};

// The rank's own code; 128 and the number for a signal.
int exit_code_of(const FirstFailure& failure);

// "ended with exit code 7", "was killed by signal 9 (SIGKILL)"
std::string describe_end(int wait_status);

// Several lines, without an end of line at the end.
std::string describe(const FirstFailure& failure, const std::vector<std::string>& last_errors);

}  // namespace hvd::launcher
