// The mark is "PROCESS:BEGAN:SPACE:FORMAT:GROUP:GROUP:GROUP:is-in", or "…:has-left". It holds the number of the owner's
// process, when that process began, the space of process numbers (host and container) that the number belongs to, and a
// digest of each group of variables. By the digests a child finds out whether its variables still describe the same
// place. Process numbers repeat, and so do those of hosts and containers.
//
// The mark may be that of another build, which hashes other variables: a program may have joined, left, and started a
// container. By such digests the same place looks like that of another launch. So FORMAT is a digest of the names that
// are hashed, and a mark of another format counts as none.
#include "bootstrap/launch/owner.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/text/number.hpp"
#include "bootstrap/launch/launchers.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::bootstrap {
namespace {

// The variables are grouped by the launcher that sets them. A launch sets the variables of one group and inherits the
// others.
constexpr std::size_t of_horovodrun = 0, of_pmix = 1, of_other_launchers = 2, groups = 3;

std::size_t group_of(const LauncherRow& row) {
  if (row.launcher == Launcher::horovodrun) return of_horovodrun;
  return row.recognised == Recognised::by_pmix ? of_pmix : of_other_launchers;
}

using Variables = std::array<std::vector<std::string_view>, groups>;

// The names of each group, each once: several launchers may set the same variable.
const Variables& variables_of_groups() {
  static const Variables variables = [] {
    Variables made;
    for (const LauncherRow& row : launchers()) {
      if (row.serves == Serves::nothing) continue;  // what serves nothing gives no place
      auto& names = made[group_of(row)];
      names.insert(names.end(), row.ranks.begin(), row.ranks.end());
      names.insert(names.end(), row.of_launch.begin(), row.of_launch.end());
    }
    for (auto& names : made) {
      std::ranges::sort(names);
      names.erase(std::unique(names.begin(), names.end()), names.end());
    }
    return made;
  }();
  return variables;
}

// A hash of lines.
class Fnv1a {
 public:
  void add(std::string_view line) {
    for (char letter : line) add(letter);
    add('\n');
  }
  std::string text() const {
    char text[17];
    auto [end, failed] = std::to_chars(text, text + sizeof text, digest_, 16);
    return {text, end};
  }

 private:
  void add(char letter) { digest_ = (digest_ ^ static_cast<unsigned char>(letter)) * 1099511628211u; }

  std::uint64_t digest_ = 14695981039346656037u;
};

std::string digest_of(const Environment& environment, std::size_t group) {
  Fnv1a digest;
  for (std::string_view name : variables_of_groups()[group]) digest.add(environment.get(name).value_or(""));
  return digest.text();
}

std::string format_of_marks() {
  Fnv1a digest;
  for (const auto& names : variables_of_groups()) {
    for (std::string_view name : names) digest.add(name);
    digest.add("");
  }
  return digest.text();
}

struct Mark {
  pid_t process = 0;
  std::uint64_t began = 0;
  std::string space;
  std::array<std::string, groups> digests;
  bool has_left = false;
};

std::optional<Mark> mark_in(const Environment& environment) {
  std::string text = environment.get(owner_variable).value_or("");
  std::vector<std::string> fields(1);
  for (char letter : text)
    if (letter == ':') fields.emplace_back();
    else fields.back() += letter;
  if (fields.size() != 5 + groups || fields[3] != format_of_marks()) return std::nullopt;
  Mark mark;
  auto read = [](const std::string& field, auto& number) {
    auto found = number_in<std::remove_reference_t<decltype(number)>>(field);
    if (found) number = *found;
    return found.has_value();
  };
  if (!read(fields[0], mark.process) || !read(fields[1], mark.began)) return std::nullopt;
  mark.space = fields[2];
  std::copy_n(fields.begin() + 4, groups, mark.digests.begin());
  mark.has_left = fields.back() != "is-in";
  return mark;
}

// True if the variables of this group have the values that they had in the owner.
bool has_values_of_owner(const Environment& environment, const Mark& mark, std::size_t group) {
  return digest_of(environment, group) == mark.digests[group];
}

// True if the owner's process numbers belong to another space than ours. No process can be looked up then, and the
// variables decide. The variables of Hydra are numbers that repeat; those of all other launchers name the launch.
bool is_out_of_sight(const Mark& mark) {
  return mark.space != posix::process_space();
}

bool is_alive(const Environment& environment, const Mark& mark) {
  if (is_out_of_sight(mark)) return !environment.has("PMI_FD") && !environment.has("PMI_PORT");
  return mark.began == 0 ? ::kill(mark.process, 0) == 0 : posix::began_at(mark.process) == mark.began;
}

bool is_this_process(const Mark& mark) {
  return !is_out_of_sight(mark) && mark.process == ::getpid() &&
         (mark.began == 0 || posix::began_at(mark.process) == mark.began);
}

// True if the owner, or a program that the owner started, has run a launcher on this host, and this process is below
// that launcher. The variables may have the same values as in the owner.
bool launcher_is_between(const Mark& mark, ListAncestors list_ancestors) {
  if (is_out_of_sight(mark)) return false;
  bool launcher_was_seen = false;
  for (const posix::Ancestor& ancestor : list_ancestors()) {
    if (ancestor.process == mark.process) return launcher_was_seen;
    launcher_was_seen = launcher_was_seen || starts_programs_itself(ancestor);
  }
  return false;
}

bool is_of_another_launch(const Environment& environment, const Mark& mark, ListAncestors list_ancestors) {
  for (std::size_t group = 0; group < groups; ++group)
    if (!has_values_of_owner(environment, mark, group)) return true;
  return launcher_is_between(mark, list_ancestors);
}

}  // namespace

std::string owner_mark(const Environment& environment, bool has_left) {
  std::string text = std::to_string(::getpid()) + ":" + std::to_string(posix::began_at(::getpid()).value_or(0)) + ":" +
                     posix::process_space() + ":" + format_of_marks();
  for (std::size_t group = 0; group < groups; ++group) text += ":" + digest_of(environment, group);
  return text + (has_left ? ":has-left" : ":is-in");
}

pid_t owner_of_place(const Environment& environment, ListAncestors list_ancestors) {
  auto mark = mark_in(environment);
  if (!mark || mark->has_left || is_this_process(*mark) || !is_alive(environment, *mark)) return 0;
  return is_of_another_launch(environment, *mark, list_ancestors) ? 0 : mark->process;
}

namespace {

// A step of srun --mpi=pmix inside a step of srun --mpi=pmi2 inherits PMI_FD. In this process that number names some
// other descriptor.
Environment without_pmi_of_step_around(const Environment& environment) {
  std::string step = environment.get("SLURM_JOB_ID").value_or("") + "." + environment.get("SLURM_STEP_ID").value_or("");
  bool is_stale = environment.get("PMIX_NAMESPACE") == "slurm.pmix." + step && environment.has("PMI_JOBID") &&
                  environment.get("PMI_JOBID") != step;
  Environment result = environment;
  if (is_stale)
    for (const char* name : {"PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_JOBID"}) result.erase(name);
  return result;
}

}  // namespace

Environment of_this_launch(const Environment& all, ListAncestors list_ancestors) {
  Environment environment = without_pmi_of_step_around(all);
  auto mark = mark_in(environment);
  if (!mark || is_this_process(*mark) || !is_of_another_launch(all, *mark, list_ancestors)) return environment;
  Environment result = environment;
  if (has_values_of_owner(all, *mark, of_horovodrun))
    for (const auto& [name, value] : environment.variables())
      if (is_trace_of(row_of(Launcher::horovodrun), name) && name != owner_variable) result.erase(name);
  if (has_values_of_owner(all, *mark, of_pmix))
    for (std::string_view name : variables_of_groups()[of_pmix]) result.erase(name);
  return result;
}

}  // namespace hvd::bootstrap
