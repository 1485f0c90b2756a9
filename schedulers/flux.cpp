// Flux: an instance knows its resources as a resource set, "R" in RFC 20 of flux-framework:
//   {"version": 1, "execution": {"R_lite": [{"rank": "0-1", "children": {"core": "0-7", "gpu": "0-3"}}],
//    "nodelist": ["n[1-2]"], "expiration": 1700000000.0}}
// The ranks of R_lite, in ascending order, belong to the names in nodelist.
#include <algorithm>
#include <cmath>
#include <map>

#include "schedulers/flux/json.hpp"
#include "schedulers/grammar/host_lists.hpp"
#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {
namespace {

// Returns the command that asks for the resources of the instance. In a task of a job of the instance it asks for those
// of the job.
std::vector<std::string> question_for(const Environment& environment) {
  if (auto job = environment.get("FLUX_JOB_ID")) return {"flux", "job", "info", *job, "R"};
  return {"flux", "kvs", "get", "resource.R"};
}

Error malformed(const std::string& what) {
  return Error(ErrorCode::invalid_argument, "Flux's resource set R: " + what);
}

Result<Json> read_resources(const Sources& sources) {
  std::string text = sources.ask(question_for(sources.environment));
  if (text.empty()) return malformed("flux does not tell it: does `flux resource list` work here?");
  auto resources = read_json(text);
  if (!resources) return malformed(resources.error().message);
  return resources;
}

Result<int> count_of(const Json& children, const char* what) {
  const Json* text = children.member(what, Json::Kind::text);
  if (text == nullptr || text->text.empty()) return 0;
  auto numbers = numbers_in(text->text);
  return numbers ? Result<int>(static_cast<int>(numbers->size())) : std::move(numbers.error());
}

struct Resources {
  int cores = 0, gpus = 0;
};

Result<std::map<int, Resources>> resources_by_rank(const Json& items) {
  std::map<int, Resources> found;
  for (const Json& item : items.items) {
    const Json* ranks = item.member("rank", Json::Kind::text);
    const Json* children = item.member("children", Json::Kind::object);
    auto numbers = numbers_in(ranks == nullptr ? "" : ranks->text);
    if (!numbers || children == nullptr) return malformed("an item of R_lite has no rank and children");
    auto cores = count_of(*children, "core"), gpus = count_of(*children, "gpu");
    if (!cores || !gpus) return malformed((cores ? gpus : cores).error().message);
    for (int rank : *numbers) found[rank] = {*cores, *gpus};
    if (found.size() > most_hosts) return malformed("it has too many ranks");
  }
  return found;
}

Result<std::vector<Host>> hosts_of(const Json& execution) {
  std::vector<Host> hosts;
  const Json* nodes = execution.member("nodelist", Json::Kind::list);
  const Json* items = execution.member("R_lite", Json::Kind::list);
  if (nodes == nullptr || items == nullptr) return malformed("it has no nodelist and R_lite");
  for (const Json& item : nodes->items) {
    auto names = expand_hosts(item.text);
    if (!names) return malformed(names.error().message);
    for (std::string& name : *names) hosts.push_back({std::move(name)});
    if (hosts.size() > most_hosts) return malformed("it has too many nodes");
  }
  auto resources = resources_by_rank(*items);
  if (!resources) return std::move(resources.error());
  if (resources->size() != hosts.size() || hosts.empty())
    return malformed("its nodelist has " + std::to_string(hosts.size()) + " nodes, its R_lite " +
                     std::to_string(resources->size()));
  auto host = hosts.begin();
  for (const auto& [rank, given] : *resources) {
    host->cores = given.cores;
    host->gpus = given.gpus;
    host++->slots = given.gpus > 0 ? given.gpus : given.cores;  // Flux does not tell a number of tasks
  }
  return hosts;
}

class Flux final : public Scheduler {
 public:
  Flux()
      : Scheduler({.name = "Flux",
                   .job_variable = "FLUX_JOB_ID",
                   .prefixes = {"FLUX_"},
                   .place = Place::inside_others,
                   .output_files = {"flux-*.out"},
                   .remote_starter = {}}) {}  // `flux run` starts the ranks

  std::optional<std::string> detected(const Environment& environment) const override {
    for (const char* variable : {"FLUX_JOB_ID", "FLUX_URI"})
      if (auto value = environment.get(variable); value && !value->empty()) return variable + ("=" + *value);
    return std::nullopt;
  }

  std::string job(const Sources& sources) const override {
    for (const char* variable : {"FLUX_JOB_ID", "FLUX_ENCLOSING_ID", "FLUX_URI"})
      if (auto value = sources.environment.get(variable)) return *value;
    return "";
  }

  Result<Allocation> allocation(const Sources& sources) const override {
    auto resources = read_resources(sources);
    if (!resources) return std::move(resources.error());
    const Json* execution = resources->member("execution", Json::Kind::object);
    if (execution == nullptr) return malformed("it has no execution");
    auto hosts = hosts_of(*execution);
    if (!hosts) return std::move(hosts.error());
    return Allocation{job(sources), std::move(*hosts), "Flux's resource set R", ""};
  }

  std::optional<std::chrono::seconds> time_left(const Sources& sources) const override {
    auto resources = read_resources(sources);
    const Json* execution = resources ? resources->member("execution", Json::Kind::object) : nullptr;
    const Json* end = execution == nullptr ? nullptr : execution->member("expiration", Json::Kind::number);
    if (end == nullptr || !(end->number > 0) || end->number > 1e12) return std::nullopt;
    auto left = static_cast<std::int64_t>(std::floor(end->number)) - sources.now_s;
    return std::chrono::seconds(std::max<std::int64_t>(0, left));
  }

  Requeue requeue(const Sources&) const override { return {}; }

  std::string how_to_ask_for(int slots) const override { return "flux batch -n " + std::to_string(slots); }
};

}  // namespace

std::unique_ptr<Scheduler> make_flux() {
  return std::make_unique<Flux>();
}

}  // namespace hvd::schedulers
