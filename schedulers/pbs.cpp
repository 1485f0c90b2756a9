// PBS in its forms (OpenPBS, PBS Professional, Torque) has a file with one line per slot. The server tells what else a
// host has (qstat -f).
#include <algorithm>
#include <string_view>

#include "base/counted.hpp"
#include "base/text/number.hpp"
#include "schedulers/grammar/comparison.hpp"
#include "schedulers/grammar/durations.hpp"
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {
namespace {

// qstat cuts long values into lines; each further line begins with a tab.
std::string without_line_breaks(std::string text) {
  for (std::size_t at; (at = text.find("\n\t")) != std::string::npos;) text.erase(at, 2);
  return text;
}

// Returns the value in a line "    name = value".
std::string_view attribute(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string_view::npos; at += name.size()) {
    bool begins = at == 0 || text[at - 1] == ' ' || text[at - 1] == '\n';
    std::string_view rest = text.substr(at + name.size());
    if (begins && rest.starts_with(" = ")) return rest.substr(3, rest.find('\n') - 3);
  }
  return {};
}

// The hosts of "x3001/0*64+x3002/1*8", each once. PBS tells them apart by their short names.
std::vector<std::string> hosts_that_run(std::string_view chunks) {
  std::vector<std::string> names;
  while (!chunks.empty()) {
    std::string_view chunk = chunks.substr(0, chunks.find('+'));
    chunks.remove_prefix(std::min(chunk.size() + 1, chunks.size()));
    std::string name(chunk.substr(0, chunk.find('/')));
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

void compare(Allocation& found, const Environment& environment, std::string_view chunks) {
  const int slots = slots_of(found.hosts), hosts = static_cast<int>(found.hosts.size());
  compare_number(found, environment, "PBS_NP", slots, found.source + " has " + counted(slots, "line"));
  compare_number(found, environment, "PBS_NUM_NODES", hosts, found.source + " has " + counted(hosts, "host"));
  const std::vector<std::string> running = hosts_that_run(chunks);
  for (const Host& host : found.hosts)
    if (!running.empty() && std::ranges::none_of(running, [&](auto& name) { return is_same_host(host.name, name); }))
      return found.contradictions.push_back(found.source + " has " + host.name + ", but exec_host of `qstat -f` has " +
                                            "no such host");
}

// Returns a number from a text like "x3001:ncpus=64:ngpus=4:mem=1gb".
int resource_of(std::string_view chunk, std::string_view name) {
  std::size_t at = chunk.find(name);
  auto number = at == std::string_view::npos ? std::nullopt : leading_number<int>(chunk.substr(at + name.size()));
  return number && *number >= 0 && *number <= most_slots ? *number : 0;
}

// Adds the resources from "(x3001:ncpus=64:ngpus=4)+(x3002[0]:ncpus=32+x3002[1]:ncpus=32)".
void add_resources(std::vector<Host>& hosts, std::string_view chunks) {
  bool tells_gpus = chunks.find(":ngpus=") != std::string_view::npos;
  while (!chunks.empty()) {
    std::size_t end = std::min(chunks.find('+'), chunks.size());
    std::string_view chunk = chunks.substr(0, end);
    chunks.remove_prefix(std::min(end + 1, chunks.size()));
    while (chunk.starts_with('(')) chunk.remove_prefix(1);
    std::string_view name = chunk.substr(0, chunk.find_first_of(":[)"));
    auto host = std::ranges::find_if(hosts, [&](const Host& each) { return is_same_host(each.name, name); });
    if (host == hosts.end()) continue;
    host->cores += resource_of(chunk, ":ncpus=");
    if (tells_gpus) host->gpus = std::max(0, host->gpus) + resource_of(chunk, ":ngpus=");
  }
}

class Pbs final : public Scheduler {
 public:
  Pbs()
      : Scheduler({.name = "PBS",
                   .job_variable = "PBS_JOBID",
                   .prefixes = {"PBS_"},
                   .place = Place::equal,
                   .output_files = {"*.o[0-9]", "*.e[0-9]", "*.o[0-9]*[0-9]", "*.e[0-9]*[0-9]"},
                   .remote_starter = {{"pbsdsh"}, Messages::by_pbsdsh_line}}) {}

  Result<Allocation> allocation(const Sources& sources) const override {
    Allocation found;
    found.job = job(sources);
    auto path = sources.environment.get("PBS_NODEFILE");
    if (!path)
      return Error(ErrorCode::invalid_argument,
                   "PBS_JOBID is set, but PBS_NODEFILE is not: hosts and slots of PBS's job are not known");
    found.source = "PBS_NODEFILE=" + *path;
    auto text = sources.read_file(*path);
    auto hosts = text ? hosts_by_lines(*text) : Result<std::vector<Host>>(std::move(text.error()));
    if (!hosts) return in(found.source, std::move(hosts.error()));
    found.hosts = std::move(*hosts);
    std::string told = without_line_breaks(sources.ask({"qstat", "-f", found.job}));
    add_resources(found.hosts, attribute(told, "exec_vnode"));
    compare(found, sources.environment, attribute(told, "exec_host"));
    return found;
  }

  std::optional<std::chrono::seconds> time_left(const Sources& sources) const override {
    std::string told = without_line_breaks(sources.ask({"qstat", "-f", job(sources)}));
    auto limit = duration_in(attribute(told, "Resource_List.walltime"));
    auto used = duration_in(attribute(told, "resources_used.walltime"));
    if (!limit) return std::nullopt;
    return std::max(std::chrono::seconds(0), *limit - used.value_or(std::chrono::seconds(0)));
  }

  Requeue requeue(const Sources& sources) const override { return {{"qrerun", job(sources)}}; }

  std::string how_to_ask_for(int slots) const override {
    return "qsub -l select=1:ncpus=" + std::to_string(slots) + ":mpiprocs=" + std::to_string(slots);
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_pbs() {
  return std::make_unique<Pbs>();
}

}  // namespace hvd::schedulers
