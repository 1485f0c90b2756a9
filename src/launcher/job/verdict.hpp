#pragma once
// How horovodrun ends, decided by how the job went: a pure function.
#include <optional>

#include "launcher/job/first_failure.hpp"
#include "launcher/job/rank_table.hpp"

namespace hvd::launcher {

// horovodrun ends with a code, or by a signal that it sends to itself, so that a shell that waits for it knows of the
// signal.
struct JobEnd {
  int exit_code = 0;
  int by_signal = 0;
  friend bool operator==(const JobEnd&, const JobEnd&) = default;
};

// What happened to the job as a whole.
struct JobCourse {
  std::optional<FirstFailure> first_failure;
  bool failed_to_start = false;
  bool is_under_site_launcher = false;
  int site_exit_code = 0;          // of the site's launcher, where that is not a rank's
  int ended_by_signal = 0;         // which horovodrun got
  bool has_lost_agent = false;     // that of this machine
  bool has_lost_reader = false;    // of what the ranks print
  bool wants_another_run = false;  // ranks of a site's launcher do (again_code)
  bool is_all_gone = true;         // nothing is left on any host
};

JobEnd verdict_on(const JobCourse& course, const RankTable& ranks);

}  // namespace hvd::launcher
