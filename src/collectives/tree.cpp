// A binomial tree, first upwards, then downwards. Reductions use the fixed pairing (schedule/pairing.hpp), so their
// bits equal those of halving_doubling. The tree of a broadcast begins at the root.
#include <bit>

#include "collectives/algorithm.hpp"
#include "collectives/schedule/cost_model.hpp"
#include "collectives/schedule/pairing.hpp"
#include "collectives/schedule/program.hpp"

namespace hvd::collectives {

namespace {

constexpr Blocks everything{0, 1};

Round send_to(Seat seat) {
  Round round;
  round.to = seat;
  round.sent = everything;
  return round;
}

Round receive_from(Seat seat) {
  Round round;
  round.from = seat;
  round.received = everything;
  return round;
}

Round reduce_from(Seat seat, bool is_total) {
  Round round = receive_from(seat);
  round.is_reduced = true;
  round.is_total = is_total;
  return round;
}

class Tree final : public Algorithm {
 public:
  const char* name() const override { return "tree"; }
  bool needs_links_of_host() const override { return false; }
  bool does(Verb verb) const override {
    return verb == Verb::allreduce || verb == Verb::broadcast || verb == Verb::barrier;
  }

  std::string_view addition_order(const Collective&, const Team&) const override { return "fixed pairing"; }

  Cost cost(const Collective& collective, const Team& team) const override {
    if (!does(collective.verb) || !is_connected(collective, team)) return Cost::impossible();
    auto [latency_s, seconds_per_byte] = message_cost(team);
    // The root is the bottleneck, because it handles the data once per child.
    double one_way_s = doublings(team.size()) * (latency_s + bytes_of(collective) * seconds_per_byte);
    return {collective.verb == Verb::broadcast ? one_way_s : 2 * one_way_s, true};
  }

  std::unique_ptr<Task> plan(const Collective& collective, Team& team) const override {
    Programs programs;
    programs.large = collective.verb == Verb::broadcast ? down_from(collective.root, team) : up_and_down(team);
    return make_program_task(collective, team, std::move(programs));
  }

 private:
  static Program up_and_down(const Team& team) {
    Program program;
    const Pairing pairing(team.size());
    const Seat me = team.group.me;
    if (!pairing.acts(me)) {
      program.rounds = {send_to(Seat{me.value - 1}), receive_from(Seat{me.value - 1})};
      return program;
    }
    const int place = pairing.place_of(me);
    if (pairing.has_folded(place)) program.rounds.push_back(reduce_from(Seat{me.value + 1}, false));
    int parent_distance = 0;
    for (int distance = pairing.core / 2; distance >= 1; distance /= 2) {
      if (place >= distance) {
        parent_distance = distance;
        break;
      }
      program.rounds.push_back(reduce_from(pairing.actor(place + distance), distance == 1));
    }
    if (parent_distance > 0) {
      program.rounds.push_back(send_to(pairing.actor(place - parent_distance)));
      program.rounds.push_back(receive_from(pairing.actor(place - parent_distance)));
    }
    // The child with the largest subtree is served first.
    for (int distance = parent_distance == 0 ? 1 : 2 * parent_distance; distance < pairing.core; distance *= 2)
      program.rounds.push_back(send_to(pairing.actor(place + distance)));
    if (pairing.has_folded(place)) program.rounds.push_back(send_to(Seat{me.value + 1}));
    return program;
  }

  static Program down_from(Seat root, const Team& team) {
    Program program;
    const int size = team.size();
    const int position = (team.group.me.value - root.value + size) % size;
    auto seat_at = [&](int other) { return Seat{(other + root.value) % size}; };
    int highest_bit = static_cast<int>(std::bit_floor(static_cast<unsigned>(position)));
    if (position != 0) program.rounds.push_back(receive_from(seat_at(position - highest_bit)));
    for (int distance = position == 0 ? 1 : 2 * highest_bit; position + distance < size; distance *= 2)
      program.rounds.push_back(send_to(seat_at(position + distance)));
    return program;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_tree() {
  return std::make_unique<Tree>();
}

}  // namespace hvd::collectives
