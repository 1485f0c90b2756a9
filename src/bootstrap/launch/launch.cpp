#include "bootstrap/launch/launch.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text/number.hpp"
#include "schedulers/slurm/components.hpp"

namespace hvd::bootstrap {
namespace {

// From this number on, steps are Slurm's own and run no ranks: the interactive shell of salloc, the batch script, the
// container of foreign processes, a pending step.
constexpr unsigned long first_special_step = 4294967290ul;

std::optional<Launch> launch_of(const LauncherRow& row, int size, int rank, std::string evidence) {
  return Launch{row.launcher, row.name, size, rank, std::move(evidence)};
}

struct Found {
  const char* variable;
  int number;
};

// Returns the first of the variables that holds a number.
std::optional<Found> first_number(const Environment& environment, Names variables) {
  for (const char* variable : variables)
    if (auto number = environment.number(variable)) return Found{variable, *number};
  return std::nullopt;
}

std::string text_of(const Found& found) {
  return std::string(found.variable) + "=" + std::to_string(found.number);
}

std::optional<Launch> by_variables(const LauncherRow& row, const Environment& environment) {
  auto size = first_number(environment, row.sizes), rank = first_number(environment, row.ranks);
  bool is_marked = std::ranges::all_of(row.marks, [&](const char* mark) { return environment.has(mark); });
  if (!rank || !is_marked) return std::nullopt;
  if (size) return launch_of(row, size->number, rank->number, text_of(*size));
  if (row.marks.size() == 0) return std::nullopt;
  // This launcher does not tell the number of all ranks. It may tell the number of ranks on this node.
  auto here = row.local_size == nullptr ? std::nullopt : environment.number(row.local_size);
  return launch_of(row, here && *here > 1 ? *here : 0, rank->number, text_of(*rank));
}

bool is_slurm_task(const Environment& environment) {
  auto step = number_in<unsigned long>(environment.get("SLURM_STEP_ID").value_or(""));
  return step && *step < first_special_step && environment.has("SLURM_PROCID");
}

// If a PMI server answers (`has_server`) and its job has another size than the step, the tasks of the step are the
// daemons of another launcher.
std::optional<Launch> by_slurm_step(const LauncherRow& row, const Environment& environment, bool has_server) {
  if (!is_slurm_task(environment)) return std::nullopt;
  const char* of_step = *row.sizes.begin();
  const char* of_job = *(row.sizes.end() - 1);
  // SLURM_NTASKS describes the whole allocation if the step was made from within the allocation. In a heterogeneous
  // step each component has its own SLURM_STEP_NUM_TASKS, and only SLURM_NTASKS counts all tasks.
  bool is_heterogeneous = schedulers::heterogeneous_job_around(environment).has_value();
  const char* name = is_heterogeneous || !environment.has(of_step) ? of_job : of_step;
  Found size{name, environment.number(name).value_or(0)};
  if (has_server && environment.number("PMI_SIZE") != size.number) return std::nullopt;
  auto rank = first_number(environment, row.ranks);
  return launch_of(row, size.number, rank ? rank->number : -1, text_of(size));
}

std::optional<Launch> by_pmi_server(const LauncherRow& row, const Environment& environment, bool has_server) {
  bool is_of_another =
      row.marks.size() > 0 && std::ranges::none_of(row.marks, [&](const char* mark) { return environment.has(mark); });
  auto size = first_number(environment, row.sizes), rank = first_number(environment, row.ranks);
  // Without a server only the variables can tell. Only the last row, which has no marks, trusts the variables alone.
  bool is_said = row.marks.size() == 0 && size && rank;
  if (is_of_another || (!has_server && !is_said)) return std::nullopt;
  if (size) return launch_of(row, size->number, rank ? rank->number : -1, text_of(*size));
  Found here{row.local_size, environment.number(row.local_size).value_or(0)};  // the server knows the size
  bool is_one = here.number <= 1;
  return launch_of(row, is_one ? 0 : here.number, rank ? rank->number : -1, is_one ? "PMI_PORT is set" : text_of(here));
}

// Such a launcher tells the number of ranks only through PMIx.
std::optional<Launch> by_pmix(const LauncherRow& row, const Environment& environment) {
  auto space = environment.get("PMIX_NAMESPACE");
  if (!space || space->starts_with("slurm.pmix.")) return std::nullopt;
  auto rank = first_number(environment, row.ranks);
  const char* name = *row.ranks.begin();
  return launch_of(row, rank && rank->number > 0 ? rank->number + 1 : 0, rank ? rank->number : -1,
                   std::string(name) + "=" + environment.get(name).value_or(""));
}

std::optional<Launch> launch_by(const LauncherRow& row, const Environment& environment, bool has_server) {
  switch (row.recognised) {
    case Recognised::by_variables: return by_variables(row, environment);
    case Recognised::by_pmi_server: return by_pmi_server(row, environment, has_server);
    case Recognised::by_pmix: return by_pmix(row, environment);
    case Recognised::by_slurm_step: return by_slurm_step(row, environment, has_server);
    case Recognised::never: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

bool is_socket_of_this_process(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
}

bool has_pmi_server(const Environment& environment, IsSocket is_socket) {
  if (auto descriptor = environment.number("PMI_FD")) return is_socket(*descriptor);
  return environment.has("PMI_PORT") && environment.has("PMI_ID");
}

std::optional<Launch> innermost_launch(const Environment& environment, IsSocket is_socket) {
  bool has_server = has_pmi_server(environment, is_socket);
  for (const LauncherRow& row : launchers())
    if (auto launch = launch_by(row, environment, has_server)) return launch;
  return std::nullopt;
}

bool may_span_nodes(const Launch& launch, const Environment& environment) {
  const LauncherRow& row = row_of(launch.launcher);
  // Each part of a heterogeneous step knows only its own nodes.
  if (launch.launcher == Launcher::slurm && schedulers::heterogeneous_job_around(environment)) return true;
  if (row.nodes != nullptr) return environment.number(row.nodes).value_or(2) > 1;
  auto here = row.local_size == nullptr ? std::nullopt : environment.number(row.local_size);
  return !here || launch.size == 0 || launch.size > *here;
}

}  // namespace hvd::bootstrap
