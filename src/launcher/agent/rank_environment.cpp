#include "launcher/agent/rank_environment.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/gpu_makes.hpp"
#include "bootstrap/launch/launchers.hpp"
#include "launcher/agent/bridge_preload.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

// This variable holds what we chose for OMP_NUM_THREADS. A job that the rank starts has other shares; it recognises our
// choice by this variable and drops it.
constexpr const char* share_variable = "HOROVOD_THREAD_SHARE";

// `own` is the environment of a rank. True if the rank's launcher set this variable, whose name users set, too.
bool is_trace_of_launcher_around(const Environment& own, std::string_view name) {
  return std::ranges::any_of(bootstrap::launchers(), [&](const bootstrap::LauncherRow& row) {
    bool is_rank = std::ranges::any_of(row.ranks, [&](const char* variable) { return own.has(variable); });
    return is_rank && std::ranges::any_of(row.traces_in_ranks, [&](const char* trace) { return name == trace; });
  });
}

// True for the variables that say which GPUs of this host a program sees, also in the spelling of container runtimes
// (APPTAINERENV_…): other hosts have other GPUs.
bool limits_gpus(std::string_view name) {
  return std::ranges::any_of(gpu_makes(), [&](const GpuMake& make) {
    return std::ranges::any_of(make.visibility, [&](const char* variable) { return name.ends_with(variable); });
  });
}

// Returns a list "a:b" without the bridge. The ranks of this job get the bridge again if they need it.
std::string without_bridge(const std::string& preloaded) {
  std::string result;
  for (std::size_t at = 0; at < preloaded.size();) {
    std::size_t end = std::min(preloaded.find_first_of(" :", at), preloaded.size());
    std::string_view library = std::string_view(preloaded).substr(at, end - at);
    if (!library.empty() && library.find("libhorovod_pmi_bridge.so") == std::string_view::npos)
      result += (result.empty() ? "" : ":") + std::string(library);
    at = end + 1;
  }
  return result;
}

// Returns the value without traces of launchers; nullopt if the whole variable is such a trace.
std::optional<std::string> cleaned(const Environment& own, const std::string& name, const std::string& value) {
  if (bootstrap::is_trace_of_launcher(name) || is_trace_of_launcher_around(own, name)) return std::nullopt;
  if (name == "OMP_NUM_THREADS" && own.get(share_variable) == value) return std::nullopt;
  if (name != "LD_PRELOAD" || value.find("libhorovod_pmi_bridge.so") == std::string::npos) return value;
  std::string left = without_bridge(value);
  return left.empty() ? std::nullopt : std::optional(left);
}

}  // namespace

Environment without_traces_of_launchers(const Environment& own) {
  Environment result;
  for (const auto& [name, value] : own.variables())
    if (auto clean = cleaned(own, name, value)) result.set(name, *clean);
  return result;
}

void drop_traces_of_launchers() {
  const Environment own = Environment::of_this_process();
  for (const auto& [name, value] : own.variables()) {
    // NOLINTBEGIN(concurrency-mt-unsafe): there is a single thread
    if (auto clean = cleaned(own, name, value); !clean) ::unsetenv(name.c_str());
    else if (*clean != value) ::setenv(name.c_str(), clean->c_str(), 1);
    // NOLINTEND(concurrency-mt-unsafe)
  }
}

std::vector<std::string> environment_of(const Environment& cleaned, const RankVariables& variables) {
  Environment all = cleaned;
  for (const auto& [name, value] : variables.from_flags) all.set(name, value);
  const Placement& placement = variables.placement;
  all.set("HOROVOD_HOSTNAME", placement.host);
  all.set("HOROVOD_RANK", std::to_string(placement.rank.value));
  all.set("HOROVOD_SIZE", std::to_string(variables.size));
  all.set("HOROVOD_LOCAL_RANK", std::to_string(placement.local_rank));
  all.set("HOROVOD_LOCAL_SIZE", std::to_string(placement.local_size));
  all.set("HOROVOD_CROSS_RANK", std::to_string(placement.cross_rank));
  all.set("HOROVOD_CROSS_SIZE", std::to_string(placement.cross_size));
  all.set("PYTHONUNBUFFERED", "1");  // Python prints each line at once, although its output is a pipe
  for (const auto& [name, value] : variables.wire_up) all.set(name, value);
  std::vector<std::string> lines;
  for (const auto& [name, value] : all.variables()) lines.push_back(name + "=" + value);
  return lines;
}

Environment exportable(const Environment& own) {
  constexpr std::string_view of_this_place[] = {"OLDPWD", "HOSTNAME", "DISPLAY", "XAUTHORITY",
                                                "DBUS_SESSION_BUS_ADDRESS"};
  Environment result;
  for (const auto& [name, value] : own.variables()) {
    std::string_view text = name;
    bool stays = std::find(std::begin(of_this_place), std::end(of_this_place), text) != std::end(of_this_place) ||
                 text.starts_with("BASH_FUNC_") || text.starts_with("SSH_") || text.starts_with("XDG_") ||
                 limits_gpus(text);
    if (!stays) result.set(name, value);
  }
  return result;
}

void complete_environment(StartRank& order, const Share& share, const std::optional<Environment>& own) {
  auto has = [&](const std::string& name) {
    return std::any_of(order.environment.begin(), order.environment.end(), [&](const std::string& line) {
      return line.size() > name.size() && line[name.size()] == '=' && line.starts_with(name);
    });
  };
  Environment local = own ? without_traces_of_launchers(*own) : Environment();
  for (const auto& [name, value] : local.variables())
    if (!has(name)) order.environment.push_back(name + "=" + value);
  // Without OMP_NUM_THREADS every rank of an unpatched OpenMP may take all cores of the machine.
  if (share.threads > 0 && !has("OMP_NUM_THREADS"))
    for (const char* name : {"OMP_NUM_THREADS", share_variable})
      order.environment.push_back(std::string(name) + "=" + std::to_string(share.threads));
}

void add_bridge(StartRank& order) {
  Environment of_rank;
  for (const std::string& line : order.environment) of_rank.set_entry(line);
  auto preload = preload_with_bridge(order.program, of_rank);
  if (!preload) return;
  std::erase_if(order.environment, [](const std::string& line) { return line.starts_with("LD_PRELOAD="); });
  order.environment.push_back("LD_PRELOAD=" + *preload);
}

std::string path_of(const std::vector<std::string>& lines) {
  Environment environment;
  for (const std::string& line : lines) environment.set_entry(line);
  return posix::search_path(environment);
}

}  // namespace hvd::launcher
