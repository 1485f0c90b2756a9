#pragma once
// The room that a job of Slurm has for ranks. A job is one component, or several components with different options
// (salloc A : B). Each component has its own variables, and its own options in a step.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/settings/environment.hpp"

namespace hvd::schedulers {

struct SlurmComponent {
  std::string suffix;                // suffix of its variables, "_HET_GROUP_1"; empty: it is the only component
  int nodes = 0;                     // number of nodes; 0: unknown
  int tasks = 0;                     // tasks that the job asked for; 0: unknown
  int cpus_per_rank = 0;             // 0: the user gave no number of processors per rank
  int room = 0;                      // the number of ranks that have room; 0: unknown
  int ranks = 0;                     // share_out() sets it
  std::vector<std::string> hosts{};  // empty: unknown
};

// The job of several components to which this one belongs. Their numbers are consecutive.
struct HeterogeneousJob {
  std::optional<std::int64_t> number;  // of the first component, which is the name of the whole job; if it is told
  int components = 0;
};
// Returns nullopt for other jobs. A job that was submitted within a heterogeneous job has inherited the variables of
// that one, because sbatch passes them on: its own number is none of theirs.
std::optional<HeterogeneousJob> heterogeneous_job_around(const Environment& environment);

std::vector<SlurmComponent> components_of_job(const Environment& environment);
// Gives each component first as many ranks as it has tasks, then as many as it has room for. The remaining ranks are
// given to the components in turn.
void share_out(std::vector<SlurmComponent>& components, int ranks);
// Returns the first two hosts of components with ranks that do not come in the order of their names: "n2, n1"; empty if
// there are no such hosts, or if only one component has ranks: Slurm keeps the order of a single component.
std::string out_of_order(const std::vector<SlurmComponent>& components);

}  // namespace hvd::schedulers
