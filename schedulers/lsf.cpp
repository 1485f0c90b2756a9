// LSF has variables and files that repeat a host once per slot, or that give its number of slots. On machines where JSM
// starts jobs (Summit and similar machines) the job's script runs on a launch node. All of these lists contain the
// launch node, but no rank may run on it.
#include <algorithm>
#include <sstream>

#include "base/counted.hpp"
#include "base/text/number.hpp"
#include "schedulers/grammar/comparison.hpp"
#include "schedulers/grammar/durations.hpp"
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {
namespace {

constexpr const char* csm_query = "/opt/ibm/csm/bin/csm_node_attributes_query";

// Reads "batch5 1 h41n08 42 h41n03 42".
Result<std::vector<Host>> hosts_with_numbers(const std::string& text) {
  std::vector<Host> hosts;
  std::istringstream words(text);
  for (std::string name, number; words >> name;) {
    auto slots = words >> number ? number_in<int>(number) : std::nullopt;
    if (!is_host_name(name) || !slots || *slots < 1 || *slots > most_slots)
      return Error(ErrorCode::invalid_argument, "expected hosts, each with its number of slots (n1 4 n2 4), found '" +
                                                    name + (number.empty() ? "" : " " + number) +
                                                    "': is the list cut off?");
    auto same = std::ranges::find(hosts, name, &Host::name);
    if (same != hosts.end()) return Error(ErrorCode::invalid_argument, "the host '" + name + "' is named twice");
    hosts.push_back({name, *slots});
    number.clear();
  }
  if (hosts.empty()) return Error(ErrorCode::invalid_argument, "expected at least one host, found none");
  return hosts;
}

Status read_hosts(Allocation& found, const Sources& sources) {
  auto take = [&](const std::string& source, Result<std::vector<Host>> hosts) -> Status {
    if (!hosts) return in(source, std::move(hosts.error()));
    found.hosts = std::move(*hosts);
    return {};
  };
  auto hosts_in_file = [&](const std::string& path) {
    auto text = sources.read_file(path);
    return text ? hosts_by_lines(*text) : Result<std::vector<Host>>(std::move(text.error()));
  };
  auto path = sources.environment.get("LSB_DJOB_HOSTFILE");
  std::string by_slots = sources.environment.get("LSB_HOSTS").value_or("");
  std::ranges::replace(by_slots, ' ', '\n');
  if (auto text = sources.environment.get("LSB_MCPU_HOSTS")) {
    HVD_RETURN_IF_ERROR(take(found.source = "LSB_MCPU_HOSTS", hosts_with_numbers(*text)));
    if (path && !path->empty()) compare_hosts(found, hosts_in_file(*path), "LSB_DJOB_HOSTFILE=" + *path);
    if (!by_slots.empty()) compare_hosts(found, hosts_by_lines(by_slots), "LSB_HOSTS");
    return {};
  }
  if (path) return take(found.source = "LSB_DJOB_HOSTFILE=" + *path, hosts_in_file(*path));
  if (!by_slots.empty()) return take(found.source = "LSB_HOSTS", hosts_by_lines(by_slots));
  return Error(ErrorCode::invalid_argument,
               "LSB_JOBID is set, but neither LSB_MCPU_HOSTS nor LSB_DJOB_HOSTFILE nor LSB_HOSTS: hosts and slots of "
               "LSF's job are not known");
}

// On Summit the launch node's name is like batch5 and it has one slot (bsub -ln_slots gives it more). On Lassen its
// name tells nothing.
bool is_launch_node(const Host& host, const std::vector<Host>& all) {
  auto is_part = [&](const char* word) { return host.name.find(word) != std::string::npos; };
  bool others_have_more = std::ranges::any_of(all, [](const Host& other) { return other.slots > 1; });
  return is_part("batch") || is_part("login") || (host.slots == 1 && others_have_more);
}

Status leave_out_the_launch_node(Allocation& found) {
  std::vector<Host> nodes;
  for (const Host& host : found.hosts) {
    if (is_launch_node(host, found.hosts)) found.launch_host = host.name;
    else nodes.push_back(host);
  }
  if (nodes.empty())
    return Error(ErrorCode::invalid_argument, found.source + " names the launch node " + found.launch_host +
                                                  " alone: the job has no compute node (bsub -nnodes 2)");
  found.hosts = std::move(nodes);
  return {};
}

// Returns the number of GPUs that CSM tells for a node, if CSM is there: "discovered_gpus:  6".
int gpus_told_by_csm(const Sources& sources, const std::string& host) {
  if (!sources.environment.has("CSM_ALLOCATION_ID")) return -1;
  std::istringstream words(sources.ask({csm_query, "-n", host}));
  for (std::string word; words >> word;)
    if (word == "discovered_gpus:")
      if (int gpus = -1; words >> gpus) return gpus;
  return -1;
}

class Lsf final : public Scheduler {
 public:
  Lsf()
      : Scheduler({.name = "LSF",
                   .job_variable = "LSB_JOBID",
                   .prefixes = {"LSB_", "LSF_", "LS_", "CSM_"},
                   .place = Place::equal,
                   .output_files = {"*.[0-9]*[0-9].out", "*.[0-9]*[0-9].err"},
                   .remote_starter = {{"blaunch"}, Messages::by_command}}) {}

  std::string job(const Sources& sources) const override {
    std::string number = sources.environment.get("LSB_JOBID").value_or("");
    std::string index = sources.environment.get("LSB_JOBINDEX").value_or("0");
    return index.empty() || index == "0" ? number : number + "[" + index + "]";
  }

  Result<Allocation> allocation(const Sources& sources) const override {
    Allocation found;
    found.job = job(sources);
    HVD_RETURN_IF_ERROR(read_hosts(found, sources));
    bool is_of_jsm = sources.environment.has("CSM_ALLOCATION_ID") || sources.has_program("jsrun");
    compare_number(found, sources.environment, "LSB_DJOB_NUMPROC", slots_of(found.hosts),
                   found.source + " has " + counted(slots_of(found.hosts), "slot"));
    for (Host& host : found.hosts) host.cores = host.slots;
    if (!is_of_jsm) return found;
    HVD_RETURN_IF_ERROR(leave_out_the_launch_node(found));
    // All nodes of such a machine are equal. There is one rank for each GPU, not for each of the 42 cores.
    int gpus = gpus_told_by_csm(sources, found.hosts.front().name);
    for (Host& host : found.hosts) {
      host.gpus = gpus;
      if (gpus > 0) host.slots = std::min(host.slots, gpus);
    }
    return found;
  }

  std::optional<std::chrono::seconds> time_left(const Sources& sources) const override {
    return hours_and_minutes_in(sources.ask({"bjobs", "-noheader", "-o", "time_left", job(sources)}));
  }

  Requeue requeue(const Sources& sources) const override { return {{"brequeue", job(sources)}}; }

  std::string how_to_ask_for(int slots) const override { return "bsub -n " + std::to_string(slots); }
};

}  // namespace

std::unique_ptr<Scheduler> make_lsf() {
  return std::make_unique<Lsf>();
}

}  // namespace hvd::schedulers
