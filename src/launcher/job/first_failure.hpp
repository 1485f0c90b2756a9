#pragma once
// Why a job failed: the text about it at the end, and the exit code.
#include <string>
#include <vector>

#include "launcher/wire/messages.hpp"

namespace hvd::launcher {

struct FirstFailure {
  enum class Kind { ended, not_started, asked_for_end, host_lost };
  Kind kind = Kind::ended;
  Rank rank;         // -1: not known, since the site's launcher does not tell
  std::string host;  // likewise empty
  int process = 0;
  Exited end;        // ended
  std::string text;  // not_started: what failed; asked_for_end: the reason given; host_lost: what is known
  int code = 1;      // not for `ended`
};

// `process` 0: not known.
FirstFailure failure_by_end(const Exited& end, int process);
FirstFailure failure_to_start(const NotStarted& report);
FirstFailure failure_by_wish(Rank rank, int process, int status, std::string reason);
FirstFailure failure_by_loss(Rank rank, int process, std::string why);

// The rank's own code; 128 and the number for a signal.
int exit_code_of(const FirstFailure& failure);

// "Process 3 exit with status code 7.", which Horovod's users know.
std::string exit_code_line(const FirstFailure& failure);

// "ended with exit code 7", "was killed by signal 9 (SIGKILL)"
std::string describe_end(int wait_status);

// The failure that the others probably follow from; they may have arrived in any order. A lost host comes first, then
// a rank that could not be started, then one that was killed; among equals the hosts' clocks decide.
const FirstFailure& likely_cause(const std::vector<FirstFailure>& failures);

// Several lines, without an end of line at the end.
std::string describe(const FirstFailure& failure, const std::vector<std::string>& last_errors);

}  // namespace hvd::launcher
