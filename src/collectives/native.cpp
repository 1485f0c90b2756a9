// The algorithm of collectives that the team's transport does itself: shared memory, MPI, NCCL.
#include "collectives/algorithm.hpp"

namespace hvd::collectives {

namespace {

class Native final : public Algorithm {
 public:
  const char* name() const override { return "native"; }
  bool needs_links_of_host() const override { return false; }
  bool does(Verb verb) const override { return row_of(verb).moves_data(); }
  std::string_view addition_order(const Collective&, const Team&) const override { return "native"; }

  Cost cost(const Collective& collective, const Team& team) const override {
    transport::NativeCollectives* native = team.link == nullptr ? nullptr : team.link->native();
    return native == nullptr || !does(collective.verb) ? Cost::impossible() : native->cost(collective);
  }

  std::unique_ptr<Task> plan(const Collective& collective, Team& team) const override {
    return team.link->native()->plan(collective);
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_native() {
  return std::make_unique<Native>();
}

}  // namespace hvd::collectives
