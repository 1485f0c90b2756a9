#include "bootstrap/launch/launch_above.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/log.hpp"
#include "base/text/number.hpp"
#include "native/posix/processes/ask_program.hpp"

namespace hvd::bootstrap {
namespace {

// Slurm's process above the tasks of a step on one host has the title "slurmstepd: [JOB.STEP]". The end of the title is
// missing if the process's command line was shorter. A step without a number (batch, interactive, extern) runs no
// ranks.
std::string_view step_in_title(const posix::Ancestor& slurmstepd) {
  std::string_view title = slurmstepd.title;
  auto open = title.find('[');
  return open == std::string_view::npos ? "" : title.substr(open + 1);
}

bool is_above_tasks(const posix::Ancestor& ancestor) {
  if (ancestor.name != *row_of(Launcher::slurm).daemons.begin()) return false;
  std::string_view step = step_in_title(ancestor);
  auto dot = step.find('.');
  return dot == std::string_view::npos || dot + 1 == step.size() ||
         std::isdigit(static_cast<unsigned char>(step[dot + 1])) != 0;
}

}  // namespace

bool starts_programs_itself(const posix::Ancestor& ancestor) {
  return std::ranges::any_of(launchers(), [&](const LauncherRow& row) {
    return row.launcher != Launcher::slurm &&
           std::ranges::any_of(row.daemons, [&](const char* name) { return ancestor.name == name; });
  });
}

int count_tasks(const posix::Ancestor& slurmstepd) {
  auto here = static_cast<int>(posix::count_children(slurmstepd.process));
  if (here > 1) return here;
  // Only one task is left on this host. The others are on other hosts, or this guard refused them earlier and they have
  // ended.
  std::string step(step_in_title(slurmstepd));
  std::string answer;
  if (step.ends_with(']'))
    answer =
        posix::answer_of({"scontrol", "show", "step", step.substr(0, step.size() - 1)}, std::chrono::seconds(3), false);
  int all = 0;
  if (auto at = answer.find(" Tasks="); at != std::string::npos)
    all = leading_number<int>(std::string_view(answer).substr(at + 7)).value_or(0);
  if (all == 0)
    log::warning(
        "this process trains alone. Whether srun started others with it is not known, because Slurm's variables "
        "are not in its environment and scontrol does not answer. If there are others, let the variables SLURM_* "
        "through to this process");
  return std::max(here, all);
}

std::optional<Launch> launch_above(std::span<const posix::Ancestor> nearest_first, CountTasks count_tasks_of) {
  for (const posix::Ancestor& ancestor : nearest_first) {
    // Only this launcher's process itself knows how many programs it started.
    if (starts_programs_itself(ancestor)) return std::nullopt;
    std::string process = "process " + std::to_string(ancestor.process) + " above it, " + ancestor.name + ", ";
    if (is_above_tasks(ancestor)) {
      int tasks = count_tasks_of(ancestor);
      return Launch{Launcher::slurm, row_of(Launcher::slurm).name, tasks, -1,
                    process + "serves a step of " + std::to_string(tasks) + " tasks"};
    }
    // PMI_FD counts even if it does not name a socket of this process: nobody is going to use the descriptor.
    if (auto launch = innermost_launch(ancestor.environment, [](int) { return true; })) {
      launch->evidence = process + "has " + launch->evidence;
      return launch;
    }
  }
  return std::nullopt;
}

}  // namespace hvd::bootstrap
