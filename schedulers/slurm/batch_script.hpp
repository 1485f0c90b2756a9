#pragma once
// The script of a batch job of Slurm, and the node that it runs on.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings/environment.hpp"

namespace hvd::schedulers {

struct BatchScript {
  enum class Fate {
    unknown,  // ask again
    lost,     // the job has lost the node of its script
    over,     // the job has ended, or has no script
  };
  Fate fate = Fate::unknown;
  bool may_requeue = false;  // the job's own option
  int restarts = 0;
  std::string host, output;  // of the script
};

// The command whose output the three functions below read.
std::vector<std::string> question_about_job(const std::string& job);
BatchScript batch_script_of(std::string_view shown);
// Returns how often the job was put back into the queue; nullopt if the text does not tell.
std::optional<int> restarts_of(std::string_view shown);
// True if the text tells that the job has ended, or is about to; false if it goes on, or nothing is known of it.
bool has_job_ended(std::string_view shown);

// Returns the name of the job in which this process runs: "17", or "17_3" for a task of an array; empty outside a job.
// A job that such a task has submitted has inherited the variables of the task, and gets its name.
std::string job_of_slurm(const Environment& environment);
// Returns the job by its own number, which is no other job's: what Slurm is asked about, and told to put back. The last
// task of an array has the number of the array: of it, "17_3". Of a component, the number of the heterogeneous job.
std::string own_job_of_slurm(const Environment& environment);
// Returns own_job_of_slurm() in a batch job, and in a job of salloc that a batch job has begun: that one has inherited
// ENVIRONMENT=BATCH, but has no script. Empty in other jobs and outside.
std::string batch_job_of_slurm(const Environment& environment);

// The place of this node among those of the job; 0 of 1 if it is not known.
struct NodePlace {
  int place = 0, nodes = 1;
};
NodePlace place_of_slurm_node(const Environment& environment);

}  // namespace hvd::schedulers
