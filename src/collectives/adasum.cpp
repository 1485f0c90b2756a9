// Adasum over messages, for teams whose number of seats is a power of two (schedule/adasum_task.cpp).
#include <bit>

#include "collectives/algorithm.hpp"
#include "collectives/schedule/adasum_task.hpp"
#include "collectives/schedule/cost_model.hpp"

namespace hvd::collectives {

namespace {

class Adasum final : public Algorithm {
 public:
  const char* name() const override { return "adasum"; }
  bool needs_links_of_host() const override { return false; }
  bool does(Verb verb) const override { return verb == Verb::adasum; }
  std::string_view addition_order(const Collective&, const Team&) const override { return "adasum"; }

  Cost cost(const Collective& collective, const Team& team) const override {
    bool is_possible = does(collective.verb) && is_floating(collective.dtype) && team.size() > 1 &&
                       std::has_single_bit(static_cast<unsigned>(team.size())) && is_connected(collective, team);
    if (!is_possible) return Cost::impossible();
    auto [latency_s, seconds_per_byte] = message_cost(team);
    const double levels = doublings(team.size());
    const double messages = 2 * levels + levels * (levels + 1) / 2;
    const double moved = 2.0 * (team.size() - 1) / team.size();
    return {messages * latency_s + moved * bytes_of(collective) * seconds_per_byte, true};
  }

  std::unique_ptr<Task> plan(const Collective& collective, Team& team) const override {
    return make_adasum_task(collective, team);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_adasum() {
  return std::make_unique<Adasum>();
}

}  // namespace hvd::collectives
