#pragma once
// A pure function that decides how horovodrun ends, from how the job went.
#include <optional>

#include "launcher/job/first_failure.hpp"
#include "launcher/job/rank_table.hpp"

namespace hvd::launcher {

// horovodrun ends with an exit code, or by a signal that it sends to itself. In the second case a shell that waits for
// horovodrun learns of the signal.
struct JobEnd {
  int exit_code = 0;
  int by_signal = 0;
  friend bool operator==(const JobEnd&, const JobEnd&) = default;
};

// What happened to the job as a whole.
struct JobCourse {
  std::optional<FirstFailure> first_failure;
  bool failed_to_start = false;
  bool has_failed = false;  // an elastic job has ended without success
  bool is_under_site_launcher = false;
  int site_exit_code = 0;          // the exit code of the site's launcher, if it is not that of a rank
  int ended_by_signal = 0;         // the signal that horovodrun got
  bool has_lost_agent = false;     // the agent of this machine was killed
  bool has_lost_reader = false;    // the reader of the ranks' output is gone
  bool wants_another_run = false;  // some rank of a site's launcher ended with again_code
  bool is_all_gone = true;         // no process of the job is left on any host
};

JobEnd verdict_on(const JobCourse& course, const RankTable& ranks);

}  // namespace hvd::launcher
