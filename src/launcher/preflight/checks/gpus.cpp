// Checks that each rank has a GPU of its own, near to its processors. GPUs are named by their bus ids.
#include <algorithm>
#include <map>

#include "base/counted.hpp"
#include "base/gpu_makes.hpp"
#include "base/text/comma_list.hpp"
#include "bootstrap/launch/launchers.hpp"
#include "launcher/preflight/check.hpp"
#include "topology/machine.hpp"
#include "topology/visible_gpus.hpp"

namespace hvd::launcher::preflight {
namespace {

// Returns what the environment says of GPUs of a make that topology::visible_gpus() does not find: numbers, or UUIDs
// that cannot be compared with bus ids.
std::optional<std::string> list_of_other_makes(const Environment& environment) {
  for (const GpuMake& make : gpu_makes())
    for (const char* variable : make.visibility)
      if (auto list = environment.get(variable); list && !topology::finds_gpus_of(make.kind)) return list;
  return std::nullopt;
}

// Returns the GPUs that a program sees here, in its order. Returns nothing if it sees all that the machine has.
std::optional<std::string> visible_here(const Environment& environment, const std::string& installed) {
  std::string names;
  const topology::VisibleGpus visible = topology::visible_gpus(environment);
  for (const VisibleGpu& gpu : visible.gpus) {
    const bool is_part = gpu.uuid.starts_with("MIG-") || gpu.bus_id.empty();
    names += (names.empty() ? "" : ",") + (is_part ? gpu.uuid : gpu.bus_id);
  }
  if (visible.machine_has_gpus) return names;
  const auto list = list_of_other_makes(environment);
  if (!list) return std::nullopt;
  const std::vector<std::string> all = items_of(installed);
  for (const std::string& entry : items_of(*list)) {
    auto number = number_in<std::size_t>(entry);
    names += (names.empty() ? "" : ",") + (number && *number < all.size() ? all[*number] : entry);
  }
  return names;
}

void gather_gpus(const Place& place, Facts& facts) {
  for (const bootstrap::LauncherRow& row : bootstrap::launchers())
    for (const char* name : row.local_ranks)
      if (auto local = place.environment.get(name); local && !facts.has("local_rank")) facts.set("local_rank", *local);
  std::vector<std::string> notices;
  auto machine = topology::read_machine(place.environment, notices);
  if (!machine) return facts.set("topology_error", machine.error().message);
  std::string gpus, near;
  for (const topology::PciDevice& device : machine->devices) {
    if (device.kind != topology::PciDevice::Kind::gpu) continue;
    gpus += (gpus.empty() ? "" : ",") + device.bus_id;
    // If the machine was read from a file, its processors are not comparable with those that this process is bound to.
    near += (near.empty() ? "" : ";") + (machine->is_this_machine ? device.near.to_string() : std::string());
  }
  facts.set("gpus", gpus);
  facts.set("gpus_near", near);
  if (auto visible = visible_here(place.environment, gpus)) facts.set("visible_gpus", *visible);
}

// Returns the name of the GPU that a rank uses. If the rank sees only one GPU, it uses that. Otherwise programs choose
// the GPU with the number hvd.local_rank(). Returns nothing if there are no GPUs, and "" if there are too few.
std::optional<std::string> gpu_of(const Facts& probe) {
  const std::vector<std::string> visible = items_of(probe.get(probe.has("visible_gpus") ? "visible_gpus" : "gpus"));
  auto local = number_in<std::size_t>(probe.get("local_rank"));
  if (probe.get("gpus").empty() || !local) return std::nullopt;
  const std::size_t choice = visible.size() == 1 ? 0 : *local;
  return choice < visible.size() ? visible[choice] : "";
}

std::string part(const std::string& list, std::size_t number) {
  std::size_t begin = 0;
  for (; number > 0 && begin != std::string::npos; --number) begin = list.find(';', begin) + 1;
  return list.substr(begin, list.find(';', begin) - begin);
}

void check_distance(const Facts& probe, const std::string& gpu, Verdict& verdict) {
  const std::vector<std::string> installed = items_of(probe.get("gpus"));
  const auto place = static_cast<std::size_t>(std::ranges::find(installed, gpu) - installed.begin());
  if (place == installed.size()) return;  // only the driver knows where it is
  auto near = posix::CpuMask::parse(part(probe.get("gpus_near"), place));
  auto own = posix::CpuMask::parse(probe.get("cpus"));
  if (!near || !own || near->empty() || own->empty() || near->overlaps(*own)) return;
  verdict.findings.push_back(
      {Severity::note, probe.get("host"),
       "local rank " + probe.get("local_rank") + " on the processors near GPU " + gpu + " (" + near->to_string() + ")",
       "it is bound to " + own->to_string(),
       "bind by GPU: srun --gpu-bind=closest, jsrun's resource sets, or let the launcher bind "
       "nothing: ranks bind themselves near to their GPUs then"});
}

void judge_node(const std::vector<const Facts*>& node, Verdict& verdict) {
  std::map<std::string, std::string> taken;
  for (const Facts* probe : node) {
    auto gpu = gpu_of(*probe);
    const std::string rank = "local rank " + probe->get("local_rank");
    const std::string gpus = counted(items_of(probe->get("gpus")).size(), "GPU");
    if (!gpu) continue;
    if (gpu->empty())
      verdict.findings.push_back(
          {Severity::fault, probe->get("host"), "a GPU for each rank",
           rank + " has none: the node has " + gpus + ", visible: '" + probe->get("visible_gpus") + "'",
           "start no more ranks on a node than it has GPUs, or make all of them visible"});
    else if (auto [other, is_new] = taken.emplace(*gpu, rank); !is_new)
      verdict.findings.push_back({Severity::fault, probe->get("host"), "a GPU of its own for each rank",
                                  rank + " and " + other->second + " take GPU " + *gpu,
                                  "do not set " + visibility_variables() +
                                      " to one GPU for all ranks; let the launcher give one to each (srun "
                                      "--gpus-per-task=1, jsrun -g 1), or unset it"});
    else check_distance(*probe, *gpu, verdict);
  }
}

}  // namespace

const Check gpus_check{
    "gpus", gather_gpus, [](const Allocation& allocation) -> Verdict {
      Verdict verdict;
      std::size_t most = 0;
      for (const Facts* first : allocation.first_of_each_node()) {
        most = std::max(most, items_of(first->get("gpus")).size());
        if (first->has("topology_error"))
          verdict.findings.push_back({Severity::note, first->get("host"), "a topology of the node",
                                      first->get("topology_error"), "unset HWLOC_XMLFILE"});
      }
      verdict.summary = most == 0 ? "no node has one" : "up to " + counted(most, "GPU") + " on a node";
      for (const Facts* first : allocation.first_of_each_node())
        if (auto own = items_of(first->get("gpus")).size(); own < most)
          verdict.findings.push_back(
              {Severity::fault, first->get("host"), counted(most, "GPU") + ", as on other nodes", counted(own, "GPU"),
               "see nvidia-smi and the kernel's log there (a GPU that fell off the bus), or ask for "
               "nodes of one kind"});
      for (const auto& node : allocation.by_node()) judge_node(node, verdict);
      return verdict;
    }};

}  // namespace hvd::launcher::preflight
