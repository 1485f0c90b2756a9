// The algorithm for a team of one rank. There is nothing to communicate, but the scales apply and the result goes to
// the output.
#include "collectives/algorithm.hpp"
#include "collectives/alone/on_device.hpp"
#include "collectives/schedule/cost_model.hpp"
#include "collectives/schedule/program.hpp"

namespace hvd::collectives {

namespace {

class Alone final : public Algorithm {
 public:
  const char* name() const override { return "alone"; }
  bool needs_links_of_host() const override { return false; }
  bool does(Verb verb) const override { return row_of(verb).moves_data(); }
  std::string_view addition_order(const Collective&, const Team&) const override { return "fixed pairing"; }
  Cost cost(const Collective& collective, const Team& team) const override {
    bool is_refused = row_of(collective.verb).takes_floats_only() && !is_floating(collective.dtype);
    const DeviceKind kind = team.device == nullptr ? DeviceKind::host : team.device->kind();
    bool is_mine = does(collective.verb) && team.size() == 1 && collective.device == kind;
    return is_mine && !is_refused ? Cost{0, true} : Cost::impossible();
  }
  std::unique_ptr<Task> plan(const Collective& collective, Team& team) const override {
    if (team.device != nullptr) return alone::plan_on_device(collective, team);
    return make_program_task(collective, team, Programs{});
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_alone() {
  return std::make_unique<Alone>();
}

}  // namespace hvd::collectives
