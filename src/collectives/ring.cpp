// Every seat exchanges messages only with its two neighbours. Blocks travel round the ring: in the first n-1 rounds
// they are reduced on their way, in the next n-1 rounds the totals are passed on. Of all algorithms it moves the fewest
// bytes and has the most rounds.
//
// The operands of an element are added in the order of the ring, beginning after the owner of the element's block. So
// the order depends on the place of the element in the batch: with more than two seats and floating types, fusion
// changes the bits.
#include "collectives/algorithm.hpp"
#include "collectives/schedule/cost_model.hpp"
#include "collectives/schedule/program.hpp"

namespace hvd::collectives {

namespace {

class Ring final : public Algorithm {
 public:
  const char* name() const override { return "ring"; }
  bool needs_links_of_host() const override { return false; }
  bool does(Verb verb) const override {
    return verb == Verb::allreduce || verb == Verb::allgather || verb == Verb::broadcast ||
           verb == Verb::reduce_scatter;
  }

  std::string_view addition_order(const Collective&, const Team& team) const override {
    return team.size() <= 2 ? "fixed pairing" : "ring";
  }

  Cost cost(const Collective& collective, const Team& team) const override {
    if (!does(collective.verb) || !is_connected(collective, team)) return Cost::impossible();
    auto [latency_s, seconds_per_byte] = message_cost(team);
    double others = team.size() - 1;
    double wire_s = bytes_of(collective) * seconds_per_byte;
    bool fixed_order = !reduces(collective.verb) || team.size() <= 2 || !is_floating(collective.dtype);
    switch (collective.verb) {
      case Verb::allreduce: return {2 * others * latency_s + 2 * others / team.size() * wire_s, fixed_order};
      case Verb::broadcast: return {others * latency_s + (others > 0 ? 1.1 * wire_s : 0), true};
      case Verb::allgather:
      case Verb::reduce_scatter: return {others * latency_s + others / team.size() * wire_s, fixed_order};
      case Verb::barrier:
      case Verb::alltoall:
      case Verb::join:
      case Verb::adasum:
      case Verb::add_set:
      case Verb::remove_set: break;
    }
    return Cost::impossible();
  }

  std::unique_ptr<Task> plan(const Collective& collective, Team& team) const override {
    Programs programs;
    if (collective.verb == Verb::broadcast) {
      programs.large = chain(team, collective.root);
    } else {
      programs.large.blocks = team.size();
      if (reduces(collective.verb)) add_reduction(programs.large, team);
      if (collective.verb != Verb::reduce_scatter) add_gathering(programs.large, team);
    }
    return make_program_task(collective, team, std::move(programs));
  }

 private:
  static Seat ahead(const Team& team, int steps) { return Seat{(team.group.me.value + steps) % team.size()}; }
  static Blocks behind(const Team& team, int steps) {
    int block = ((team.group.me.value - steps) % team.size() + team.size()) % team.size();
    return {block, block + 1};
  }

  // After these rounds every seat has the total of the block with its own number.
  static void add_reduction(Program& program, const Team& team) {
    const int size = team.size();
    for (int k = 0; k < size - 1; ++k) {
      Round round;
      round.to = ahead(team, 1);
      round.sent = behind(team, k + 1);
      round.from = ahead(team, size - 1);
      round.received = behind(team, k + 2);
      round.is_reduced = true;
      // The arriving data are the sum over the earlier seats. With two seats the lower seat is the left operand, as in
      // the other algorithms.
      round.arrival_first = size > 2 || round.from < team.group.me;
      round.is_total = k == size - 2;
      program.rounds.push_back(round);
    }
  }

  static void add_gathering(Program& program, const Team& team) {
    for (int k = 0; k < team.size() - 1; ++k) {
      Round round;
      round.to = ahead(team, 1);
      round.sent = behind(team, k);
      round.from = ahead(team, team.size() - 1);
      round.received = behind(team, k + 1);
      program.rounds.push_back(round);
    }
  }

  static Program chain(const Team& team, Seat root) {
    Program program;
    if (team.group.me != root) {
      Round in;
      in.from = ahead(team, team.size() - 1);
      in.received = {0, 1};
      program.rounds.push_back(in);
    }
    if (ahead(team, 1) != root) {
      Round out;
      out.to = ahead(team, 1);
      out.sent = {0, 1};
      program.rounds.push_back(out);
    }
    return program;
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_ring() {
  return std::make_unique<Ring>();
}

}  // namespace hvd::collectives
