// Checks that the ranks form one world: all ranks know the same number of ranks, no rank exists twice, and the ranks
// can meet.
#include <algorithm>
#include <map>
#include <utility>

#include "base/counted.hpp"
#include "bootstrap/launch/launch.hpp"
#include "launcher/preflight/check.hpp"

namespace hvd::launcher::preflight {
namespace {

// Returns true if a launcher that fills one host after the other starts this rank on the host of this probe.
bool is_in_its_place(const Allocation& allocation, const Facts& probe, const std::string& rank) {
  auto name = [](const Facts& one) { return short_name(one.get(one.has("given_name") ? "given_name" : "host")); };
  std::ptrdiff_t before = 0;
  for (const std::string& host : allocation.hosts) {
    auto here = std::ranges::count(allocation.probes, short_name(host), name);
    if (short_name(host) == name(probe)) {
      auto number = number_in<int>(rank);
      return number && *number >= before && *number < before + here;
    }
    before += here;
  }
  return false;
}

}  // namespace

const Check world_check{
    "world",
    [](const Place& place, Facts& facts) {
      if (auto launch = bootstrap::innermost_launch(place.environment)) {
        facts.set("said_rank", launch->rank);
        facts.set("said_size", launch->size);
        facts.set("launched_by", launch->evidence);
      }
      for (const char* name : {"RANK", "SIZE"})
        if (auto value = place.environment.get(std::string("HOROVOD_") + name))
          facts.set(std::string(name) == "RANK" ? "said_rank" : "said_size", *value);
    },
    [](const Allocation& allocation) -> Verdict {
      const std::string wanted = std::to_string(allocation.ranks);
      const std::string remedy =
          "start all ranks with one command, and remove what sets HOROVOD_*, OMPI_*, PMI_* or SLURM_* by hand on that "
          "host (profile, job prolog)";
      Verdict verdict{counted(static_cast<std::size_t>(allocation.ranks), "rank") + " met", {}};
      std::map<std::string, const Facts*> seen;
      const Facts* cannot_meet = nullptr;
      for (const Facts& probe : allocation.probes) {
        std::string size = probe.has("size") ? probe.get("size") : probe.get("said_size");
        std::string rank = probe.has("rank") ? probe.get("rank") : probe.get("said_rank");
        if (!size.empty() && size != wanted && size != "0")
          verdict.findings.push_back({Severity::fault, probe.get("host"), "a world of " + wanted + " ranks",
                                      "a rank that believes in " + size, remedy});
        if (auto [other, is_new] = seen.emplace(rank, &probe); !rank.empty() && rank != "-1" && !is_new) {
          const Facts* wrong = &probe;
          if (is_in_its_place(allocation, probe, rank) && !is_in_its_place(allocation, *other->second, rank))
            std::swap(wrong, other->second);
          verdict.findings.push_back({Severity::fault, wrong->get("host"), "each rank once",
                                      "rank " + rank + " also runs on " + other->second->get("host"), remedy});
        }
        if (probe.has("meeting_error")) cannot_meet = &probe;
      }
      if (verdict.findings.empty() && cannot_meet != nullptr)
        verdict.findings.push_back(
            {Severity::fault, "", "all ranks meet", cannot_meet->get("meeting_error"),
             "look at the other findings first: a rank that is late or cannot be reached keeps all from meeting"});
      if (!allocation.probes.empty() && allocation.probes.front().has("bootstrap"))
        verdict.summary += " by " + allocation.probes.front().get("bootstrap");
      return verdict;
    }};

}  // namespace hvd::launcher::preflight
