#pragma once
// Puts a job that has stopped before its end back into the queue of its scheduler.
#include <functional>
#include <string>
#include <vector>

#include "launcher/targets/job_around.hpp"

namespace hvd::launcher {

struct Requeuing {
  int most = 0;          // the largest number of times that a job is put back
  std::string counters;  // the folder for the counts, used if the scheduler does not count
  struct Answer {
    bool is_done = false;
    std::string text;
  };
  std::function<Answer(const std::vector<std::string>& command)> run;
};

// The message and the exit code with which horovodrun ends. The code is 0 if the scheduler put the job back. If the
// scheduler puts jobs back because of their exit code, it is that code. Otherwise it is the ranks' code, which a job
// script may act on.
struct Requeued {
  int exit_code = 0;
  std::string text;
};
Requeued requeue(const JobAround& job, const Requeuing& how);

// Runs the command of a scheduler that puts a job back. The program is looked for along PATH.
Requeuing::Answer run_requeue_command(const std::vector<std::string>& command);

}  // namespace hvd::launcher
