// hvd_agreement_simulator [--name value]…: simulates one job and prints a line of JSON, for table.py and compare.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "agreement_simulator/simulation.hpp"

namespace {

using namespace hvd::simulation;

using Setter = std::function<void(const std::string&)>;

int usage(const std::map<std::string, Setter>& options) {
  std::fputs("hvd_agreement_simulator [OPTION VALUE]…; options, times in ns:\n", stderr);
  for (const auto& [name, setter] : options) std::fprintf(stderr, "  %s\n", name.c_str());
  return 2;
}

std::map<std::string, Setter> options_of(Settings& settings) {
  auto number = [](auto& place) {
    return [&place](const std::string& text) {
      place = static_cast<std::remove_reference_t<decltype(place)>>(std::stod(text));
    };
  };
  auto incident = [](std::optional<Incident>& place) {
    return [&place](const std::string& text) {  // parses a text of the form STEP:RANK
      place = Incident{std::stoi(text), std::stoi(text.substr(text.find(':') + 1))};
    };
  };
  return {{"--hosts", number(settings.hosts)},
          {"--ranks-per-host", number(settings.ranks_per_host)},
          {"--tree-width", number(settings.tree_width)},
          {"--central", number(settings.is_central)},
          {"--tensors", number(settings.tensors)},
          {"--steps", number(settings.steps)},
          {"--latency", number(settings.links.latency)},
          {"--jitter", number(settings.links.jitter)},
          {"--gigabits", number(settings.links.gigabits_per_second)},
          {"--inside-a-host", number(settings.links.inside_a_host)},
          {"--wake", number(settings.costs.wake)},
          {"--frame-sent", number(settings.costs.frame_sent)},
          {"--frame-received", number(settings.costs.frame_received)},
          {"--item", number(settings.costs.item)},
          {"--rank-submits", number(settings.costs.rank_submits)},
          {"--rank-finishes", number(settings.costs.rank_finishes)},
          {"--shared-cores", number(settings.shared_cores)},
          {"--spread", number(settings.spread)},
          {"--patience", number(settings.patience)},
          {"--seed", number(settings.seed)},
          {"--straggler", incident(settings.straggler)},
          {"--straggler-delay", number(settings.straggler_delay)},
          {"--mismatch", incident(settings.mismatch)},
          {"--lost-host", incident(settings.lost_host)}};
}

void print(const Settings& settings, const Outcome& outcome) {
  std::printf("{\"hosts\": %d, \"ranks\": %d, \"central\": %s, \"steps\": [", settings.hosts, settings.ranks(),
              settings.is_central ? "true" : "false");
  const char* separator = "";
  for (const Step& step : outcome.steps) {
    std::printf(
        "%s{\"messages\": %lld, \"bytes\": %lld, \"messages_at_root\": %lld, \"bytes_at_root\": %lld, "
        "\"messages_in_one_host\": %lld, \"batches\": %d, \"failures\": %d, \"duration_ns\": %lld, \"latency_ns\": "
        "%lld}",
        separator, static_cast<long long>(step.messages), static_cast<long long>(step.bytes),
        static_cast<long long>(step.messages_at_root), static_cast<long long>(step.bytes_at_root),
        static_cast<long long>(step.messages_in_one_host), step.batches, step.failures,
        static_cast<long long>(step.duration), static_cast<long long>(step.latency));
    separator = ", ";
  }
  std::printf("], \"told\": %d, \"not_told\": %d, \"told_after_ns\": %lld, \"same_schedule\": %s}\n",
              outcome.survivors_told, outcome.survivors_left, static_cast<long long>(outcome.told_after),
              outcome.schedules_agree ? "true" : "false");
}

}  // namespace

int main(int count, char** words) {
  Settings settings;
  auto options = options_of(settings);
  if (count % 2 == 0) return usage(options);
  for (int at = 1; at < count; at += 2) {
    auto option = options.find(words[at]);
    if (option == options.end()) return usage(options);
    option->second(words[at + 1]);
  }
  if (settings.hosts < 1 || settings.ranks_per_host < 1 || settings.ranks_per_host > 64 || settings.tree_width < 1 ||
      settings.tensors < 1) {
    std::fputs("expected at least one host and one tensor, 1 to 64 ranks per host and a tree width of 1 or more\n",
               stderr);
    return 2;
  }
  Outcome outcome = simulate(settings);
  print(settings, outcome);
  return outcome.schedules_agree ? 0 : 1;
}
