#pragma once
// A job that stopped before its training was done goes back into the queue of its scheduler.
#include <functional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "launcher/targets/job_around.hpp"

namespace hvd::launcher {

struct Requeuing {
  int most = 0;          // times that the job is put back
  std::string counters;  // folder for the count, where the scheduler does not keep one
  struct Answer {
    bool is_done = false;
    std::string text;
  };
  std::function<Answer(const std::vector<std::string>& command)> run;
};

// What horovodrun says and ends with: 0 if the scheduler took the job, the scheduler's own code where that is how it is
// asked, and else the code of the ranks, by which a job script may do more.
struct Requeued {
  int exit_code = 0;
  std::string text;
};
Requeued requeue(const JobAround& job, const Environment& environment, const Requeuing& how);

// Runs the program of such a command, found along PATH.
Requeuing::Answer run_requeue_command(const std::vector<std::string>& command);

}  // namespace hvd::launcher
