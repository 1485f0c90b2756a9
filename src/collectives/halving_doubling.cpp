// Recursive halving, then recursive doubling, over the fixed pairing (schedule/pairing.hpp).
//
// For d = core/2 … 1 the places p and p XOR d exchange data: each gives away the half of its blocks that the other
// place will own, and reduces the half that it keeps. Then for d = 1 … core/2 they exchange the blocks that they own. A
// chunk of a few kilobytes is not halved: both places send all of it and compute the same result. This takes half the
// rounds and gives the same bits. Folded seats send all their data before the exchange and get the result after it.
#include "base/panic.hpp"
#include "collectives/algorithm.hpp"
#include "collectives/schedule/cost_model.hpp"
#include "collectives/schedule/pairing.hpp"
#include "collectives/schedule/program.hpp"

namespace hvd::collectives {

namespace {

constexpr std::size_t small_bytes = 8 << 10;

// Writes the program of one seat. If each block belongs to a seat, a place of the pairing owns the blocks of its one or
// two seats. Otherwise a place owns one block.
class Writer {
 public:
  Writer(const Team& team, bool blocks_are_seats)
      : pairing_(team.size()),
        blocks_are_seats_(blocks_are_seats),
        me_(team.group.me),
        place_(pairing_.place_of(me_)),
        acts_(pairing_.acts(me_)) {
    program_.blocks = blocks_are_seats ? team.size() : pairing_.core;
    program_.rounds.reserve(2 * static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(team.size()))) + 2);
  }

  Program take() { return std::move(program_); }

  void fold(bool is_reduced, Blocks what) {
    if (!acts_) return add(Seat{me_.value - 1}, what, Seat{-1}, {}, false);
    if (pairing_.has_folded(place_)) add(Seat{-1}, {}, Seat{me_.value + 1}, what, is_reduced);
  }
  void unfold(Blocks what) {
    if (!acts_) return add(Seat{-1}, {}, Seat{me_.value - 1}, what, false);
    if (pairing_.has_folded(place_)) add(Seat{me_.value + 1}, what, Seat{-1}, {}, false);
  }
  void halve() {
    for (int distance = pairing_.core / 2; acts_ && distance >= 1; distance /= 2) {
      int partner = place_ ^ distance;
      add(pairing_.actor(partner), run_of(partner, distance), pairing_.actor(partner), run_of(place_, distance), true);
      finish_reduction(partner, distance);
    }
  }
  void gather() {
    for (int distance = 1; acts_ && distance < pairing_.core; distance *= 2) {
      int partner = place_ ^ distance;
      add(pairing_.actor(partner), run_of(place_, distance), pairing_.actor(partner), run_of(partner, distance), false);
    }
  }
  void exchange_everything() {
    for (int distance = pairing_.core / 2; acts_ && distance >= 1; distance /= 2) {
      int partner = place_ ^ distance;
      add(pairing_.actor(partner), everything(), pairing_.actor(partner), everything(), true);
      finish_reduction(partner, distance);
    }
  }

  Blocks everything() const { return {0, program_.blocks}; }
  // Returns the block of the folded seat in this seat's pair.
  Blocks block_of_folded() const {
    int folded_seat = acts_ ? me_.value + 1 : me_.value;
    return {folded_seat, folded_seat + 1};
  }

 private:
  // Places are divided into aligned runs of `length` places. Returns the blocks of the run that contains `place`.
  Blocks run_of(int place, int length) const {
    int first = place / length * length;
    if (!blocks_are_seats_) return {first, first + length};
    return {pairing_.first_seat(first), pairing_.first_seat(first + length)};
  }
  void add(Seat to, Blocks sent, Seat from, Blocks received, bool is_reduced) {
    Round round;
    round.to = to;
    round.sent = sent;
    round.from = from;
    round.received = received;
    round.is_reduced = is_reduced;
    program_.rounds.push_back(round);
  }
  void finish_reduction(int partner, int distance) {
    program_.rounds.back().arrival_first = partner < place_;
    program_.rounds.back().is_total = distance == 1;
  }

  const Pairing pairing_;
  const bool blocks_are_seats_;
  const Seat me_;
  const int place_;
  const bool acts_;
  Program program_;
};

Program reduce_everywhere(const Team& team, bool halves) {
  Writer writer(team, false);
  writer.fold(true, writer.everything());
  if (halves) {
    writer.halve();
    writer.gather();
  } else {
    writer.exchange_everything();
  }
  writer.unfold(writer.everything());
  return writer.take();
}

Program reduce_and_scatter(const Team& team) {
  Writer writer(team, true);
  writer.fold(true, writer.everything());
  writer.halve();
  writer.unfold(writer.block_of_folded());
  return writer.take();
}

Program gather_everywhere(const Team& team) {
  Writer writer(team, true);
  writer.fold(false, writer.block_of_folded());
  writer.gather();
  writer.unfold(writer.everything());
  return writer.take();
}

class HalvingDoubling final : public Algorithm {
 public:
  const char* name() const override { return "halving_doubling"; }
  bool needs_links_of_host() const override { return false; }
  bool does(Verb verb) const override {
    return verb == Verb::allreduce || verb == Verb::allgather || verb == Verb::barrier || verb == Verb::reduce_scatter;
  }

  std::string_view addition_order(const Collective&, const Team&) const override { return "fixed pairing"; }

  Cost cost(const Collective& collective, const Team& team) const override {
    if (!does(collective.verb) || !is_connected(collective, team)) return Cost::impossible();
    auto [latency_s, seconds_per_byte] = message_cost(team);
    const Pairing pairing(team.size());
    double rounds = doublings(pairing.core);
    double wire_s = bytes_of(collective) * seconds_per_byte;
    double halved_s = wire_s * (pairing.core - 1) / pairing.core;
    bool folds = pairing.folded > 0;
    switch (collective.verb) {
      case Verb::allreduce: {
        bool small = bytes_of(collective) <= static_cast<double>(small_bytes);
        double core_s = small ? rounds * (latency_s + wire_s) : 2 * (rounds * latency_s + halved_s);
        return {core_s + (folds ? 2 * (latency_s + wire_s) : 0), true};
      }
      case Verb::barrier: return {(rounds + (folds ? 2 : 0)) * latency_s, true};
      case Verb::allgather:
      case Verb::reduce_scatter: return {rounds * latency_s + halved_s + (folds ? 2 * latency_s + wire_s : 0), true};
      case Verb::broadcast:
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
    switch (collective.verb) {
      case Verb::allgather: programs.large = gather_everywhere(team); break;
      case Verb::reduce_scatter: programs.large = reduce_and_scatter(team); break;
      case Verb::allreduce:
      case Verb::barrier:
        programs.large = reduce_everywhere(team, true);
        programs.small = reduce_everywhere(team, false);
        programs.small_bytes = small_bytes;
        break;
      case Verb::broadcast:
      case Verb::alltoall:
      case Verb::join:
      case Verb::adasum:
      case Verb::add_set:
      case Verb::remove_set: panic("halving_doubling was asked to plan a verb that it does not do");
    }
    return make_program_task(collective, team, std::move(programs));
  }
};

}  // namespace

std::unique_ptr<Algorithm> make_halving_doubling() {
  return std::make_unique<HalvingDoubling>();
}

}  // namespace hvd::collectives
