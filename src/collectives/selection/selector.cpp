#include "collectives/selection/selector.hpp"

#include <cstdio>

#include "base/counted.hpp"
#include "base/text/size_text.hpp"
#include "collectives/registry.hpp"
#include "collectives/schedule/cost_model.hpp"

namespace hvd::collectives {

namespace {

// The size for which the addition order of a reduction is chosen.
constexpr std::int64_t reference_bytes = 1 << 20;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Error refused(std::string_view text, const std::string& expected, std::string_view found) {
  return {ErrorCode::invalid_argument, "HOROVOD_ALGORITHM=" + std::string(text) + ": expected " + expected +
                                           ", found '" + std::string(found) +
                                           "'; write for example allreduce=halving_doubling,broadcast=tree"};
}

// Returns the reason why no algorithm can do this, and what the user can do about it.
std::string why_nothing(const Collective& collective, const Team& team) {
  if (collective.device != DeviceKind::host)
    return "the tensors are in the memory of a GPU, which none of the links between the ranks carries; give tensors in "
           "host memory (tensor.cpu()), or start the ranks with a transport for GPUs";
  std::string missing = team.link == nullptr ? "all ranks" : "";
  auto check = [&missing](const Team* part, const char* name) {
    if (part != nullptr && part->link == nullptr && part->size() > 1)
      missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  check(team.node, "the ranks of a node");
  check(team.rail, "the ranks of a rail");
  if (missing.empty()) return "every algorithm that does " + std::string(name_of(collective.verb)) + " refuses it";
  return "no transport links " + missing +
         "; ranks on several machines need a network transport, ranks of one machine " + "shared memory";
}

}  // namespace

Selector::Selector() : overrides_(verbs().size(), nullptr) {
  for (const Maker& maker : registry()) algorithms_.push_back(maker.make());
}

Result<std::unique_ptr<Selector>> Selector::make(const Config& config) {
  std::unique_ptr<Selector> selector(new Selector());
  HVD_RETURN_IF_ERROR(selector->read_overrides(config.algorithm));
  selector->hierarchical_allreduce_ = config.hierarchical_allreduce;
  selector->torus_allreduce_ = config.torus_allreduce;
  selector->hierarchical_allgather_ = config.hierarchical_allgather;
  return selector;
}

const Algorithm* Selector::named(std::string_view name) const {
  for (const auto& algorithm : algorithms_)
    if (algorithm->name() == name) return algorithm.get();
  return nullptr;
}

Status Selector::read_overrides(std::string_view text) {
  std::string_view rest = text;
  while (!trimmed(rest).empty()) {
    std::size_t comma = rest.find(',');
    std::string_view entry = trimmed(rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) return refused(text, "verb=algorithm", entry);
    std::string_view verb_name = trimmed(entry.substr(0, equals)), name = trimmed(entry.substr(equals + 1));

    const VerbRow* verb = nullptr;
    std::string verb_names, algorithm_names;
    for (const VerbRow& row : verbs()) {
      if (!row.moves_data()) continue;
      verb_names += (verb_names.empty() ? "" : ", ") + std::string(row.name);
      if (verb_name == row.name) verb = &row;
    }
    if (verb == nullptr) return refused(text, "one of the verbs " + verb_names, verb_name);
    for (const auto& algorithm : algorithms_)
      if (algorithm->does(verb->verb))
        algorithm_names += (algorithm_names.empty() ? "" : ", ") + std::string(algorithm->name());
    const Algorithm* algorithm = named(name);
    if (algorithm == nullptr || !algorithm->does(verb->verb))
      return refused(text, "one of the algorithms for " + std::string(verb_name) + ": " + algorithm_names, name);
    overrides_[static_cast<std::size_t>(verb->verb)] = algorithm;
  }
  return {};
}

Selector::Choice Selector::cheapest(const Collective& collective, const Team& team, std::string_view order,
                                    bool must_be_fixed, const Algorithm* avoided) const {
  Choice best;
  for (const auto& algorithm : algorithms_) {
    if (algorithm.get() == avoided) continue;
    Cost cost = algorithm->cost(collective, team);
    if (!cost.possible() || (must_be_fixed && !cost.fixed_order)) continue;
    if (!order.empty() && algorithm->addition_order(collective, team) != order) continue;
    if (best.algorithm == nullptr || cost.seconds < best.cost.seconds) best = {algorithm.get(), cost, ""};
  }
  return best;
}

Selector::Wanted Selector::wanted_on_device(const Collective& collective, const Team& team) const {
  if (collective.device == DeviceKind::host || team.nodes < 2) return {};
  if (collective.verb == Verb::allgather && hierarchical_allgather_)
    return {named("staged"), nullptr, "HOROVOD_HIERARCHICAL_ALLGATHER=1"};
  if (collective.verb != Verb::allreduce) return {};
  if (torus_allreduce_) return {named("hierarchical"), nullptr, "HOROVOD_TORUS_ALLREDUCE=1"};
  if (hierarchical_allreduce_.empty()) return {};
  if (hierarchical_allreduce_ == "1") return {named("hierarchical"), nullptr, "HOROVOD_HIERARCHICAL_ALLREDUCE=1"};
  return {nullptr, named("hierarchical"), "HOROVOD_HIERARCHICAL_ALLREDUCE=0"};
}

Selector::Choice Selector::decide(const Collective& collective, const Team& team) const {
  if (const Algorithm* asked = overrides_[static_cast<std::size_t>(collective.verb)])
    if (Cost cost = asked->cost(collective, team); cost.possible()) return {asked, cost, "HOROVOD_ALGORITHM"};
  const Wanted wanted = wanted_on_device(collective, team);
  if (wanted.algorithm != nullptr)
    if (Cost cost = wanted.algorithm->cost(collective, team); cost.possible())
      return {wanted.algorithm, cost, wanted.knob};
  Choice choice = by_cost(collective, team, wanted.avoided);
  return choice.algorithm == nullptr && wanted.avoided != nullptr ? by_cost(collective, team, nullptr) : choice;
}

Selector::Choice Selector::by_cost(const Collective& collective, const Team& team, const Algorithm* avoided) const {
  if (!reduces(collective.verb) || !is_floating(collective.dtype)) {
    Choice choice = cheapest(collective, team, {}, false, avoided);
    choice.reason = "smallest cost; nothing is rounded";
    return choice;
  }
  Collective reference = collective;
  reference.count = reference_bytes / static_cast<std::int64_t>(size_of(collective.dtype));
  const bool is_on_device = collective.device != DeviceKind::host;
  Choice leader = cheapest(reference, team, {}, !is_on_device, avoided);
  if (leader.algorithm == nullptr) leader = cheapest(reference, team, {}, false, avoided);
  if (leader.algorithm == nullptr) return leader;
  const bool is_fixed = leader.cost.fixed_order;
  const bool keeps_order = is_fixed || !is_on_device || collective.verb == Verb::adasum;
  Choice choice =
      cheapest(collective, team, keeps_order ? leader.algorithm->addition_order(reference, team) : std::string_view{},
               is_fixed, avoided);
  if (choice.algorithm == nullptr) choice = leader;
  choice.reason = is_fixed       ? "smallest cost among those of its addition order"
                  : is_on_device ? "smallest cost; at one megabyte no fixed addition order is cheaper"
                                 : "no algorithm has a fixed addition order";
  return choice;
}

const Algorithm* Selector::find(const Collective& collective, const Team& team) const {
  return decide(collective, team).algorithm;
}

Result<const Algorithm*> Selector::choose(const Collective& collective, const Team& team) const {
  if (const Algorithm* algorithm = find(collective, team)) return algorithm;
  std::string wanted = name_of(collective.verb);
  if (row_of(collective.verb).has_tensor()) wanted += std::string(" of ") + name_of(collective.dtype);
  return Error(ErrorCode::unsupported, "no algorithm can do " + wanted + " over this team of " +
                                           std::to_string(team.size()) + " ranks: " + why_nothing(collective, team));
}

std::string Selector::explain(const Collective& collective, const Team& team) const {
  Choice choice = decide(collective, team);
  if (choice.algorithm == nullptr) return "nothing can do this here";
  char cost[32];
  std::snprintf(cost, sizeof cost, "%.1f us", choice.cost.seconds * 1e6);
  std::string text = std::string(choice.algorithm->name()) + "  (" + choice.reason + "; ";
  if (reduces(collective.verb) && is_floating(collective.dtype)) {
    text += "order: " + std::string(choice.algorithm->addition_order(collective, team));
    text += choice.cost.fixed_order ? "; " : ", bits may change with fusion; ";
  }
  text += "about " + std::string(cost);
  if (collective.device != DeviceKind::host) text += costs_of_others(collective, team, choice.algorithm);
  text += ")";
  const Wanted wanted = wanted_on_device(collective, team);
  if (wanted.algorithm != nullptr && wanted.algorithm != choice.algorithm)
    text += std::string("  [") + wanted.knob + ": " + wanted.algorithm->name() + " cannot do this over this team]";
  const Algorithm* asked = overrides_[static_cast<std::size_t>(collective.verb)];
  if (asked != nullptr && asked != choice.algorithm)
    text += "  [" + std::string(asked->name()) + " was asked for, but cannot do this over this team]";
  return text;
}

std::string Selector::costs_of_others(const Collective& collective, const Team& team, const Algorithm* chosen) const {
  std::string text;
  for (const auto& algorithm : algorithms_) {
    const Cost cost = algorithm->cost(collective, team);
    if (algorithm.get() == chosen || !cost.possible()) continue;
    char other[64];
    std::snprintf(other, sizeof other, ", %s %.1f us", algorithm->name(), cost.seconds * 1e6);
    text += other;
  }
  return text;
}

std::string Selector::table(const Team& team, DataType dtype) const {
  std::string text = counted(team.size(), "rank");
  if (team.nodes > 1) text += " on " + std::to_string(team.nodes) + " nodes, " + std::to_string(team.rails) + " rails";
  text += ", " + std::string(name_of(dtype)) + "\n";
  for (const VerbRow& row : verbs()) {
    if (!row.moves_data()) continue;
    for (std::int64_t bytes : {8ll, 4ll << 10, 256ll << 10, 4ll << 20, 64ll << 20, 256ll << 20}) {
      Collective collective;
      collective.verb = row.verb;
      collective.dtype = dtype;
      if (team.device != nullptr) collective.device = team.device->kind();
      collective.count = row.has_tensor() ? bytes / static_cast<std::int64_t>(size_of(dtype)) : 0;
      char beginning[40];
      std::snprintf(beginning, sizeof beginning, "  %-13s %8s  ", row.name,
                    row.has_tensor() ? size_text(bytes).c_str() : "");
      text += beginning + explain(collective, team) + "\n";
      if (!row.has_tensor()) break;
    }
  }
  if (team.node != nullptr && team.device == nullptr) {
    text += "stages of hierarchical, inside the node: " + (team.node->size() > 1 ? table(*team.node, dtype) : "none\n");
    if (team.rail != nullptr) text += "stages of hierarchical, along a rail: " + table(*team.rail, dtype);
  }
  return text;
}

}  // namespace hvd::collectives
