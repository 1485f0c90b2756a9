#include "launcher/job/first_failure.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "base/counted.hpp"
#include "base/result.hpp"
#include "base/text/size_text.hpp"
#include "launcher/agent/rank_process.hpp"
#include "native/posix/processes/signals.hpp"

namespace hvd::launcher {
namespace {

std::string limit_text(const Exited& end) {
  return end.limit_bytes == 0
             ? "it has no memory limit"
             : "its memory limit is " + size_text(end.limit_bytes) + " (" + std::to_string(end.limit_bytes) + " bytes)";
}

// Returns a likely reason for a signal that the program did not ask for; empty if there is nothing to add.
std::string likely_reason(const Exited& end, int signal) {
  if (signal == SIGBUS)
    return "likely reason: a file or shared memory that it had mapped was cut, or its disk or /dev/shm is full";
  if (signal == SIGILL) return "likely reason: its code was built for another kind of CPU";
  if (signal != SIGKILL) return "";
  if (!end.group_known)
    return "likely reason: the out-of-memory killer, or somebody sent it; this kernel does not tell which (see dmesg)";
  if (end.oom_kills > 0)
    return "likely reason: out of memory. The out-of-memory killer struck " + counted(end.oom_kills, "time") +
           " in this memory control group (" + end.group + ") since the job started; " + limit_text(end) +
           ". Use fewer ranks or less memory per rank (batch size, loader workers), or ask for more memory";
  return "not the out-of-memory killer of this cgroup (" + end.group + ", whose count did not rise; " +
         limit_text(end) + "): somebody sent it";
}

std::string_view id_of(const FirstFailure& failure) {
  switch (failure.kind) {
    case FirstFailure::Kind::ended: return WIFSIGNALED(failure.end.wait_status) ? "HVD1202" : "HVD1201";
    case FirstFailure::Kind::not_started: return "HVD1203";
    case FirstFailure::Kind::host_lost: return "HVD1204";
    case FirstFailure::Kind::asked_for_end: break;
  }
  return "HVD1205";
}

}  // namespace

FirstFailure failure_by_end(const Exited& end, int process) {
  FirstFailure failure;
  failure.rank = end.rank;
  failure.process = process;
  failure.end = end;
  return failure;
}

FirstFailure failure_to_start(const NotStarted& report) {
  FirstFailure failure;
  failure.kind = FirstFailure::Kind::not_started;
  failure.rank = report.rank;
  failure.text = report.error == 0 ? report.step : system_error(report.step, report.error).message;
  if (report.error == E2BIG)
    failure.text +=
        " (its arguments and its environment together are too long: unset what it does not need, or raise the limit, "
        "which is a quarter of ulimit -s)";
  else if (report.error == ENOENT && report.step == StartFailure::describe(StartFailure::execute))
    failure.text +=
        " (the command is there: what is missing is the interpreter that its first line names, or the loader that it "
        "was linked for; a script from Windows names an interpreter that ends in a carriage return)";
  failure.code = report.error == 0 ? report.code : report.error == ENOENT ? 127 : 126;
  return failure;
}

FirstFailure failure_by_request(Rank rank, int process, int status, std::string reason) {
  FirstFailure failure;
  failure.kind = FirstFailure::Kind::asked_for_end;
  failure.rank = rank;
  failure.process = process;
  failure.text = std::move(reason);
  failure.code = status > 0 && status < 256 ? status : 1;
  return failure;
}

FirstFailure failure_by_loss(Rank rank, int process, std::string why) {
  FirstFailure failure;
  failure.kind = FirstFailure::Kind::host_lost;
  failure.rank = rank;
  failure.process = process;
  failure.text = std::move(why);
  failure.code = 128 + SIGKILL;
  return failure;
}

int exit_code_of(const FirstFailure& failure) {
  if (failure.kind != FirstFailure::Kind::ended) return failure.code;
  int status = failure.end.wait_status;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string exit_code_line(const FirstFailure& failure) {
  return "Process " + (failure.rank.value < 0 ? "unknown" : std::to_string(failure.rank.value)) +
         " exit with status code " + std::to_string(exit_code_of(failure)) + ".";
}

std::string describe_end(int wait_status) {
  if (!WIFSIGNALED(wait_status)) return "ended with exit code " + std::to_string(WEXITSTATUS(wait_status));
  int signal = WTERMSIG(wait_status);
  return "was killed by signal " + std::to_string(signal) + " (" + posix::name_of_signal(signal) + ")";
}

const FirstFailure& likely_cause(const std::vector<FirstFailure>& failures) {
  auto order = [](const FirstFailure& failure) {
    switch (failure.kind) {
      case FirstFailure::Kind::host_lost: return 0;
      case FirstFailure::Kind::not_started: return 1;
      case FirstFailure::Kind::ended: return WIFSIGNALED(failure.end.wait_status) ? 2 : 4;
      case FirstFailure::Kind::asked_for_end: return 3;
    }
    return 5;
  };
  return *std::min_element(failures.begin(), failures.end(), [&](const FirstFailure& a, const FirstFailure& b) {
    return std::pair(order(a), a.end.at_ns) < std::pair(order(b), b.end.at_ns);
  });
}

std::string describe(const FirstFailure& failure, const std::vector<std::string>& last_errors) {
  std::string text =
      "Horovod detected that one or more processes exited with non-zero status, thus causing the job to be terminated. "
      "The "
      "first process to do so was:\nProcess name: " +
      (failure.rank.value < 0 ? "unknown" : std::to_string(failure.rank.value)) +
      "\nExit code:    " + std::to_string(exit_code_of(failure)) +
      "\nFIRST FAILURE: " + (failure.rank.value < 0 ? "a rank" : "rank " + std::to_string(failure.rank.value)) +
      (failure.host.empty() ? "" : " on host " + failure.host);
  if (failure.process > 0) text += " (process " + std::to_string(failure.process) + ")";
  switch (failure.kind) {
    case FirstFailure::Kind::ended: text += " " + describe_end(failure.end.wait_status); break;
    case FirstFailure::Kind::not_started: text += " could not be started: " + failure.text; break;
    case FirstFailure::Kind::host_lost: text += " was lost: " + failure.text; break;
    case FirstFailure::Kind::asked_for_end:
      text += " asked for the end of the job: " + (failure.text.empty() ? "it gave no reason" : failure.text);
      break;
  }
  if (failure.kind == FirstFailure::Kind::ended && WIFSIGNALED(failure.end.wait_status)) {
    std::string reason = likely_reason(failure.end, WTERMSIG(failure.end.wait_status));
    if (!reason.empty()) text += "\n  " + reason;
  }
  // Other failures are causes, even if a rank has left before.
  const bool may_be_of_loss = failure.kind == FirstFailure::Kind::asked_for_end ||
                              (failure.kind == FirstFailure::Kind::ended && WIFEXITED(failure.end.wait_status));
  if (may_be_of_loss && !failure.left_before.empty())
    text += "\n  " + failure.left_before +
            " had ended with exit code 0 before it: if the ranks were to end together, look there first";
  text += "\n  more about this: docs/errors.md [" + std::string(id_of(failure)) + "]";
  if (!last_errors.empty()) text += "\n  the last that it wrote to stderr:";
  for (const std::string& line : last_errors) text += "\n    | " + line;
  return text;
}

}  // namespace hvd::launcher
