#pragma once
// What srun and the steps around it need to know of Slurm's variables.
#include <string>
#include <string_view>
#include <vector>

#include "base/settings/environment.hpp"
#include "schedulers/slurm/components.hpp"

namespace hvd::schedulers {

// True below srun, also for the tasks that salloc starts.
bool is_in_slurm_step(const Environment& environment);
// True for the one task of `srun -n 4 --pty bash` that has a terminal. The shells in the other tasks read the end of
// their input and end.
bool has_terminal_of_slurm_step(const Environment& environment);
// True on a node of the job, false where salloc leaves its user.
bool is_on_slurm_node(const Environment& environment);

// The variables of a step around this process, and those of the components of a heterogeneous job in which this job was
// submitted. srun would take them for options of the new step.
std::vector<std::string> variables_of_slurm_step(const Environment& environment);
// The variables by which a job gives srun options about resources.
std::vector<std::string> variables_of_slurm_resources();
// The variables by which `sbatch --export` reaches every srun of the job.
std::vector<std::string> variables_of_slurm_export();
// The variables that the room of a component was computed from, "SLURM_CPUS_PER_TASK=4, …"; empty if none is set.
std::string source_of_room(const Environment& environment, const SlurmComponent& component);

}  // namespace hvd::schedulers
