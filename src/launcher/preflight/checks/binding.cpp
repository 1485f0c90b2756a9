// Checks that each rank has processors of its own.
#include <unistd.h>

#include <algorithm>

#include "base/counted.hpp"
#include "base/settings/config.hpp"
#include "launcher/preflight/check.hpp"
#include "native/posix/machine/affinity.hpp"
#include "topology/visible_gpus.hpp"

namespace hvd::launcher::preflight {
namespace {

// True if the rank may not use all processors of its node. A rank that is not bound may be slow, but users often want
// it.
bool is_bound(const Facts& probe, const posix::CpuMask& mask) {
  return mask.count() < static_cast<int>(probe.number("cpus_online").value_or(0));
}

// True if ranks bind themselves in hvd.init(), because the machine has GPUs. Ranks with one mask share it out.
bool binds_itself(const Environment& environment) {
  const auto binds = is_on(environment, "HOROVOD_BIND");
  return binds && *binds && topology::visible_gpus(environment).machine_has_gpus;
}

void judge_node(const std::vector<const Facts*>& node, std::size_t& fewest, std::size_t& most, Verdict& verdict) {
  std::vector<posix::CpuMask> masks;
  posix::CpuMask all;
  for (const Facts* probe : node) {
    auto mask = posix::CpuMask::parse(probe->get("cpus"));
    masks.push_back(mask ? *mask : posix::CpuMask());
    all |= masks.back();
    fewest = std::min(fewest, static_cast<std::size_t>(masks.back().count()));
    most = std::max(most, static_cast<std::size_t>(masks.back().count()));
  }
  const std::string host = node.front()->get("host");
  auto online = static_cast<std::size_t>(node.front()->number("cpus_online").value_or(0));
  if (node.size() > online && online > 0)
    verdict.findings.push_back({Severity::note, host, "no more ranks than processors",
                                counted(node.size(), "rank") + " on " + counted(online, "processor"),
                                "ask for more nodes, or fewer ranks on each"});
  bool some_unbound = false;
  for (std::size_t one = 0; one < node.size(); ++one) {
    const bool shares_out = node[one]->has("binds_itself");
    some_unbound = some_unbound || (!is_bound(*node[one], masks[one]) && !shares_out);
    for (std::size_t other = 0; other < one; ++other) {
      bool both_bound = is_bound(*node[one], masks[one]) && is_bound(*node[other], masks[other]);
      if (!both_bound || !masks[one].overlaps(masks[other]) || node.size() > online) continue;
      if (shares_out && masks[one] == masks[other]) continue;
      verdict.findings.push_back({Severity::fault, host, "processors of its own for each rank",
                                  "two ranks share processors " + (masks[one] & masks[other]).to_string() + " (" +
                                      masks[one].to_string() + " and " + masks[other].to_string() + ")",
                                  "ask the launcher for disjoint sets (srun --cpu-bind=cores -c N, mpiexec --bind-to "
                                  "core --map-by slot:pe=N), and take out taskset or numactl"});
      return;
    }
  }
  if (some_unbound && node.size() > 1 && node.size() <= online)
    verdict.findings.push_back({Severity::note, host, "ranks bound to their processors",
                                "ranks may use all " + counted(online, "processor") + " of the node",
                                "ask the launcher for a binding (srun --cpu-bind=cores, mpiexec --bind-to core)"});
}

}  // namespace

const Check binding_check{"binding",
                          [](const Place& place, Facts& facts) {
                            if (binds_itself(place.environment)) facts.set("binds_itself", "yes");
                            if (auto mask = posix::affinity()) facts.set("cpus", mask->to_string());
                            facts.set("cpus_online", ::sysconf(_SC_NPROCESSORS_ONLN));
                          },
                          [](const Allocation& allocation) -> Verdict {
                            Verdict verdict;
                            std::size_t fewest = std::string::npos, most = 0;
                            for (const auto& node : allocation.by_node()) judge_node(node, fewest, most, verdict);
                            verdict.summary = fewest == most ? counted(most, "processor") + " for each rank"
                                                             : "from " + std::to_string(fewest) + " to " +
                                                                   counted(most, "processor") + " for a rank";
                            return verdict;
                          }};

}  // namespace hvd::launcher::preflight
