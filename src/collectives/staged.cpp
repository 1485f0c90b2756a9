// Carries tensors in device memory through host memory, in chunks (staged/task.cpp).
#include <algorithm>

#include "collectives/algorithm.hpp"
#include "collectives/schedule/cost_model.hpp"
#include "collectives/selection/selector.hpp"
#include "collectives/staged/task.hpp"

namespace hvd::collectives {

namespace {

class Staged final : public Algorithm {
 public:
  const char* name() const override { return "staged"; }
  bool needs_links_of_host() const override { return true; }
  bool does(Verb verb) const override { return row_of(verb).moves_data() && row_of(verb).has_tensor(); }

  std::string_view addition_order(const Collective& collective, const Team& team) const override {
    const Collective host = on_host(collective);
    return team.host->selector->find(host, *team.host)->addition_order(host, *team.host);
  }

  Cost cost(const Collective& collective, const Team& team) const override {
    bool is_mine = team.device != nullptr && team.host != nullptr && team.size() > 1 && does(collective.verb) &&
                   collective.device == team.device->kind();
    if (!is_mine) return Cost::impossible();
    const Collective host = on_host(collective);
    const Algorithm* algorithm = team.host->selector->find(host, *team.host);
    if (algorithm == nullptr) return Cost::impossible();
    const Cost travel = algorithm->cost(host, *team.host);
    // Chunks are copied while others travel. The first one out and the last one back overlap with nothing.
    const double copied_s = bytes_of(collective) * bus.seconds_per_byte;
    const double chunk_s =
        bus.latency_s + std::min(bytes_of(collective), static_cast<double>(staged::chunk_bytes)) * bus.seconds_per_byte;
    return {std::max(travel.seconds, copied_s) + 2 * chunk_s, travel.fixed_order};
  }

  std::unique_ptr<Task> plan(const Collective& collective, Team& team) const override {
    return staged::plan(collective, team);
  }

 private:
  static Collective on_host(const Collective& collective) {
    Collective host = collective;
    host.device = DeviceKind::host;
    return host;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_staged() {
  return std::make_unique<Staged>();
}

}  // namespace hvd::collectives
