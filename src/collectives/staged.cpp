// Carries tensors in device memory through host memory, in chunks (staged/task.cpp). Used where no link carries device
// memory.
#include "collectives/algorithm.hpp"
#include "collectives/selection/selector.hpp"
#include "collectives/staged/task.hpp"

namespace hvd::collectives {

namespace {

class Staged final : public Algorithm {
 public:
  const char* name() const override { return "staged"; }
  bool does(Verb verb) const override { return row_of(verb).moves_data() && row_of(verb).has_tensor(); }

  std::string_view addition_order(const Collective& collective, const Team& team) const override {
    const Collective host = on_host(collective);
    return team.host->selector->find(host, *team.host)->addition_order(host, *team.host);
  }

  Cost cost(const Collective& collective, const Team& team) const override {
    bool is_mine = team.device != nullptr && team.host != nullptr && team.size() > 1 && does(collective.verb) &&
                   collective.device == team.device->kind();
    if (!is_mine || is_carried(collective, team)) return Cost::impossible();
    const Collective host = on_host(collective);
    const Algorithm* algorithm = team.host->selector->find(host, *team.host);
    return algorithm == nullptr ? Cost::impossible() : algorithm->cost(host, *team.host);
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
  // True if a link does the collective itself. It is then not staged, even if the link has its own order of additions.
  static bool is_carried(const Collective& collective, const Team& team) {
    transport::NativeCollectives* native = team.link == nullptr ? nullptr : team.link->native();
    return native != nullptr && collective.verb != Verb::adasum && native->cost(collective).possible();
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_staged() {
  return std::make_unique<Staged>();
}

}  // namespace hvd::collectives
