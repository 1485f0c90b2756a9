#include "launcher/job/verdict.hpp"

#include <signal.h>

namespace hvd::launcher {

JobEnd verdict_on(const JobCourse& course, const RankTable& ranks) {
  if (course.first_failure) return {exit_code_of(*course.first_failure), 0};
  if (course.failed_to_start || course.has_failed) return {1, 0};
  if (course.site_exit_code != 0) return {course.site_exit_code, 0};
  if (course.ended_by_signal != 0) {
    JobEnd by_signal{128 + course.ended_by_signal, course.ended_by_signal};
    if (course.is_under_site_launcher && !ranks.have_all_succeeded()) return by_signal;
    // If all ranks caught the signal and exited by themselves (after a checkpoint, or with a code that asks the
    // scheduler to requeue the job), their exit code decides.
    return ranks.have_all_exited() ? JobEnd{ranks.first_exit_code(), 0} : by_signal;
  }
  if (course.has_lost_agent) return {128 + SIGKILL, 0};
  if (course.has_lost_reader && !ranks.have_all_succeeded()) return {128 + SIGPIPE, SIGPIPE};
  if (!course.is_all_gone) return {1, 0};
  return {ranks.want_another_run() || course.wants_another_run ? again_code : 0, 0};
}

}  // namespace hvd::launcher
