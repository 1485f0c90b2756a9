#pragma once
// The room that a job of Slurm has. A job is one component, or several that were asked for with options of their own
// (salloc A : B). Each component has variables of its own, and in a step options of its own.
#include <string>
#include <vector>

#include "base/environment.hpp"

namespace hvd::schedulers {

struct SlurmComponent {
  std::string suffix;     // of its variables, "_HET_GROUP_1"; empty: it is the only one
  int nodes = 0;          // 0: it is not known
  int tasks = 0;          // that the job was asked for with; 0: it is not known
  int cpus_per_rank = 0;  // 0: nothing was said
  int room = 0;           // for ranks; 0: it is not known
  int ranks = 0;          // by share_out()
};

std::vector<SlurmComponent> components_of_job(const Environment& environment);
// Gives each component as many ranks as it has tasks, then as it has room; then the rest in turn.
void share_out(std::vector<SlurmComponent>& components, int ranks);

}  // namespace hvd::schedulers
