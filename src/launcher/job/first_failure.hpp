#pragma once
// Describes why a job failed: the text that is printed at the end, and the exit code.
#include <string>
#include <vector>

#include "launcher/wire/messages.hpp"

namespace hvd::launcher {

struct FirstFailure {
  enum class Kind { ended, not_started, asked_for_end, host_lost };
  Kind kind = Kind::ended;
  Rank rank;         // -1 if the site's launcher does not tell the rank
  std::string host;  // empty if the host is unknown
  int process = 0;
  Exited end;        // how the rank ended; only for the kind `ended`
  std::string text;  // not_started: what failed; asked_for_end: the given reason; host_lost: what is known
  int code = 1;      // the exit code for all kinds but `ended`
  // The first rank that had ended with exit code 0 by then, "rank 2 on host n1"; or empty.
  std::string left_before{};
};

// `process` is 0 if it is not known.
FirstFailure failure_by_end(const Exited& end, int process);
FirstFailure failure_to_start(const NotStarted& report);
FirstFailure failure_by_request(Rank rank, int process, int status, std::string reason);
FirstFailure failure_by_loss(Rank rank, int process, std::string why);

// Returns the rank's own exit code; for a rank that a signal ended, 128 plus the signal's number.
int exit_code_of(const FirstFailure& failure);

// Returns a line like "Process 3 exit with status code 7.", which users of Horovod know.
std::string exit_code_line(const FirstFailure& failure);

// Returns a text like "ended with exit code 7" or "was killed by signal 9 (SIGKILL)".
std::string describe_end(int wait_status);

// Returns the failure that probably caused the others. The failures may have arrived in any order. A lost host comes
// first, then a rank that could not be started, then a rank that was killed. Between failures of one kind the hosts'
// clocks decide.
const FirstFailure& likely_cause(const std::vector<FirstFailure>& failures);

// Returns several lines. The last line has no line feed.
std::string describe(const FirstFailure& failure, const std::vector<std::string>& last_errors);

}  // namespace hvd::launcher
