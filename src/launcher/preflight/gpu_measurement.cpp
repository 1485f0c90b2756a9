#include "launcher/preflight/gpu_measurement.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "launcher/preflight/link_measurement.hpp"
#include "native/nccl/measuring.hpp"
#include "native/posix/plugins/shared_library.hpp"

namespace hvd::launcher::preflight {
namespace {

using namespace std::chrono_literals;

constexpr auto time_of_one = 12s;  // of which NCCL's start may take most
constexpr int most_partners = 7;

// Null where there is no plugin, or one of another build.
const nccl::Measuring* measuring(const Environment& environment) {
  const std::string path = posix::plugin_path("nccl", environment);
  if (path.empty()) return nullptr;
  auto library = posix::SharedLibrary::open(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) return nullptr;
  auto entry = reinterpret_cast<const nccl::Measuring* (*)()>(library->symbol(nccl::measuring_symbol));
  if (entry == nullptr) return nullptr;
  const posix::PluginStamp found = entry()->stamp, wanted = posix::plugin_stamp(sizeof(nccl::Measuring));
  const bool is_ours = found.table_bytes == wanted.table_bytes && std::string_view(found.version) == wanted.version;
  return is_ours ? entry() : nullptr;
}

std::vector<int> ranks_on(const std::vector<int>& nodes, int node) {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(nodes.size()); ++rank)
    if (nodes[static_cast<std::size_t>(rank)] == node) ranks.push_back(rank);
  return ranks;
}

int place_in(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::ranges::find(ranks, rank) - ranks.begin());
}

std::string gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", bytes / 1e9);
  return text;
}

struct Names {
  const char *allreduce, *partner;
};
// Returns false if it has failed, which the other ranks notice by themselves.
bool measure(const nccl::Measuring& plugin, const Environment& environment, const nccl::Part& part, Names names,
             Facts& facts) {
  auto rates = plugin.measure(environment, part);
  if (!rates) {
    facts.set("gpu_error", rates.error().message);
    return false;
  }
  facts.set(names.allreduce, gigabytes(rates->allreduce));
  if (rates->best_partner > 0) facts.set(names.partner, gigabytes(rates->best_partner));
  return true;
}

}  // namespace

void gather_gpu_facts(const Place& place, Facts& facts) {
  auto local = number_in<int>(facts.get("local_rank"));
  const nccl::Measuring* plugin = measuring(place.environment);
  if (plugin == nullptr || !local) return;
  auto found = plugin->look(place.environment, *local);
  // A node without a driver is one without GPUs, which is no trouble where others have none either.
  if (!found) return facts.set("gpu_trouble", found.error().message);
  facts.set("driver", found->driver);
  facts.set("gpu_name", found->name);
  facts.set("gpu_uuid", found->uuid);
  if (!found->without_nccl.empty()) return facts.set("gpu_trouble", found->without_nccl);
  facts.set("nccl", found->nccl);
  if (!found->fault.empty()) facts.set("nccl_fault", found->fault);
  facts.set("gpu_ordinal", found->ordinal);
}

GpuCard draw_gpu_card(const Environment& environment, const Facts& facts, bool is_rank_0) {
  GpuCard card;
  const nccl::Measuring* plugin = facts.has("gpu_ordinal") ? measuring(environment) : nullptr;
  if (plugin == nullptr) return card;
  card.can_measure = true;
  for (const auto& [is_mine, id] : {std::pair(facts.has("first"), &card.id_of_node), {is_rank_0, &card.id_of_world}})
    if (auto drawn = is_mine ? plugin->draw_id(environment) : Result<std::string>(""); drawn) *id = *drawn;
    else card.can_measure = false;
  return card;
}

std::vector<int> partners_in_node(const std::vector<int>& ranks_of_node, int rank) {
  std::vector<int> partners;
  const auto me = static_cast<std::size_t>(place_in(ranks_of_node, rank));
  for (const auto& round : rounds_of(static_cast<int>(ranks_of_node.size()), most_partners))
    partners.push_back(round[me]);
  return partners;
}

std::vector<int> partners_on_other_nodes(const std::vector<int>& nodes, int rank) {
  std::vector<int> partners;
  const int my_node = nodes[static_cast<std::size_t>(rank)];
  const auto place = static_cast<std::size_t>(place_in(ranks_on(nodes, my_node), rank));
  for (const auto& round : rounds_of(1 + *std::ranges::max_element(nodes), most_partners)) {
    const int other = round[static_cast<std::size_t>(my_node)];
    const std::vector<int> there = other < 0 ? std::vector<int>() : ranks_on(nodes, other);
    partners.push_back(place < there.size() ? there[place] : -1);
  }
  return partners;
}

void measure_gpus(const Environment& environment, const GpuTeam& team, Facts& facts) {
  const nccl::Measuring* plugin =
      std::ranges::all_of(team.cards, &GpuCard::can_measure) ? measuring(environment) : nullptr;
  if (plugin == nullptr) return;
  const std::vector<int> here = ranks_on(team.nodes, team.nodes[static_cast<std::size_t>(team.rank)]);
  nccl::Part part;
  part.ordinal = number_in<int>(facts.get("gpu_ordinal")).value_or(0);
  if (here.size() > 1) {
    for (const int other : here) part.id += team.cards[static_cast<std::size_t>(other)].id_of_node;  // one has it
    part.rank = place_in(here, team.rank);
    part.size = static_cast<int>(here.size());
    part.partners = partners_in_node(here, team.rank);
    part.deadline = Deadline::after(time_of_one);
    if (!measure(*plugin, environment, part, {"gpu_node", "gpu_partner"}, facts)) return;
  }
  if (here.size() == team.nodes.size()) return;
  part.id = team.cards.front().id_of_world;
  part.rank = team.rank;
  part.size = static_cast<int>(team.nodes.size());
  part.partners = partners_on_other_nodes(team.nodes, team.rank);
  part.deadline = Deadline::after(time_of_one);
  measure(*plugin, environment, part, {"gpu_world", "gpu_rail"}, facts);
}

}  // namespace hvd::launcher::preflight
