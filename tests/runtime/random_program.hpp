#pragma once
// Random programs of collectives, drawn from a seed, and the results that they must have.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/collective.hpp"
#include "base/verb.hpp"

namespace hvd::runtime::rigs {

using Values = std::vector<float>;

// What all ranks draw alike from the seed.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  int below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }
  bool one_in(int chances) { return below(chances) == 0; }
  std::mt19937_64& source() { return random_; }

 private:
  std::mt19937_64 random_;
};

// An operation that the program uses in many rounds.
struct Slot {
  std::string name;
  Verb verb = Verb::allreduce;
  ReduceOp op = ReduceOp::sum;
  double postscale = 1.0;
  int set = 0;  // index in Program::sets
  int rows = 0, width = 1;
  int root = 0;  // rank
  bool is_on_device = true, has_stream = true, is_in_place = true;
};

struct Program {
  std::vector<int> shape;
  bool is_direct = false, has_separate_thread = false;
  // Allreduce goes along nodes and rails, which have equal lengths. The torus has links of devices on the rails, too.
  bool is_hierarchical = false, is_torus = false;
  std::vector<std::vector<int>> sets;  // the first one is the world
  std::vector<Slot> slots;
  struct Round {
    std::vector<int> used;    // indices of slots
    std::vector<int> names;   // a number in the name of each; changes after a round in which ranks may not wait for it
    bool may_drop = false;    // ranks may drop the handles of what they have started
    std::vector<int> joined;  // ranks that only join; all others do so after their operations
  };
  std::vector<Round> rounds;
  std::optional<int> victim;  // lost in the last round

  explicit Program(std::uint64_t seed) {
    Dice dice(seed);
    draw_world(dice);
    for (int i = 2 + dice.below(7); i > 0; --i) slots.push_back(draw_slot(dice));
    int drops = 0;
    for (int i = 3 + dice.below(6); i > 0; --i) rounds.push_back(draw_round(dice, drops));
    if (ranks() > 1 && dice.one_in(6)) victim = dice.below(ranks());
  }
  int ranks() const { return std::accumulate(shape.begin(), shape.end(), 0); }

 private:
  void draw_world(Dice& dice) {
    for (int nodes = 1 + dice.below(4); nodes > 0; --nodes) shape.push_back(1 + dice.below(2));
    if (shape.size() == 1) shape[0] = 1 + dice.below(4);
    is_direct = dice.one_in(2);
    is_hierarchical = dice.one_in(3);
    is_torus = is_hierarchical && is_direct && dice.one_in(2);
    if (is_hierarchical) shape.assign(static_cast<std::size_t>(2 + dice.below(3)), 1 + dice.below(2));
    has_separate_thread = dice.one_in(2);
    sets.emplace_back(static_cast<std::size_t>(ranks()));
    std::iota(sets[0].begin(), sets[0].end(), 0);
    for (int more = dice.below(3); more > 0 && ranks() > 1; --more) {
      std::vector<int> members = sets[0];
      std::ranges::shuffle(members, dice.source());
      members.resize(static_cast<std::size_t>(1 + dice.below(ranks() - 1)));
      std::ranges::sort(members);
      if (std::ranges::find(sets, members) == sets.end()) sets.push_back(members);
    }
  }
  Slot draw_slot(Dice& dice) {
    static constexpr Verb verbs[] = {Verb::allreduce, Verb::allreduce, Verb::allreduce,      Verb::broadcast,
                                     Verb::allgather, Verb::alltoall,  Verb::reduce_scatter, Verb::barrier};
    Slot slot;
    slot.name = "slot" + std::to_string(slots.size());
    slot.verb = verbs[dice.below(8)];
    slot.set = dice.below(static_cast<int>(sets.size()));
    const auto& members = sets[static_cast<std::size_t>(slot.set)];
    slot.op = slot.verb == Verb::allreduce && dice.one_in(3) ? (dice.one_in(2) ? ReduceOp::min : ReduceOp::max)
                                                             : ReduceOp::sum;
    if (reduces(slot.verb) && slot.op == ReduceOp::sum && dice.one_in(3)) slot.postscale = 0.5;
    slot.rows = dice.one_in(6) ? 20'000 + dice.below(60'000) : dice.below(300);
    slot.width = slot.verb == Verb::allreduce ? 1 : 1 + dice.below(3);
    if (slot.verb == Verb::reduce_scatter) slot.rows = static_cast<int>(members.size()) * (1 + dice.below(40));
    slot.root = members[static_cast<std::size_t>(dice.below(static_cast<int>(members.size())))];
    slot.is_on_device = slot.verb != Verb::barrier && !dice.one_in(5);
    slot.has_stream = slot.is_on_device && !dice.one_in(4);
    slot.is_in_place = dice.one_in(2);
    return slot;
  }
  Round draw_round(Dice& dice, int& drops) {
    Round round;
    round.may_drop = dice.one_in(4);
    // What a rank has not waited for fails where the rank joins before others start the same, unless zeros would do.
    const bool has_joins = ranks() > 1 && dice.one_in(5) && (rounds.empty() || !rounds.back().may_drop);
    for (int i = 0; i < static_cast<int>(slots.size()); ++i) {
      const Slot& slot = slots[static_cast<std::size_t>(i)];
      if (has_joins && (slot.verb != Verb::allreduce || slot.op != ReduceOp::sum || slot.set != 0)) continue;
      if (dice.one_in(3)) continue;
      round.used.push_back(i);
      round.names.push_back(drops);
    }
    drops += round.may_drop ? 1 : 0;
    if (has_joins)
      for (int rank = 0; rank < ranks(); ++rank)
        if (dice.one_in(3) && round.joined.size() + 1 < static_cast<std::size_t>(ranks())) round.joined.push_back(rank);
    return round;
  }
};

inline bool holds(const std::vector<int>& list, int value) {
  return std::ranges::find(list, value) != list.end();
}

// ---- the naive model

// Rows that a rank gives in a round: to a member, for alltoall; for allgather, in all.
inline int rows_of(const Slot& slot, std::size_t round, int from, int to) {
  return static_cast<int>((round * 3 + static_cast<std::size_t>(from * 5 + to * 7 + slot.rows)) % 4);
}

inline Values given(const Program& program, const Slot& slot, std::size_t round, int rank) {
  int rows = slot.rows;
  if (slot.verb == Verb::barrier) rows = 0;
  if (slot.verb == Verb::allgather) rows = rows_of(slot, round, rank, 0);
  if (slot.verb == Verb::alltoall) {
    rows = 0;
    for (int to : program.sets[static_cast<std::size_t>(slot.set)]) rows += rows_of(slot, round, rank, to);
  }
  Values values(static_cast<std::size_t>(rows * slot.width));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((rank + 1) * static_cast<int>((i + round) % 7) + slot.rows % 5);
  return values;
}

inline Values reduced(const Program& program, const Slot& slot, std::size_t round, const std::vector<int>& without) {
  Values result;
  bool is_first = true;
  for (int rank : program.sets[static_cast<std::size_t>(slot.set)]) {
    if (holds(without, rank)) continue;
    const Values part = given(program, slot, round, rank);
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (is_first) result.push_back(part[i]);
      else if (slot.op == ReduceOp::min) result[i] = std::min(result[i], part[i]);
      else if (slot.op == ReduceOp::max) result[i] = std::max(result[i], part[i]);
      else result[i] += part[i];
    }
    is_first = false;
  }
  for (float& value : result) value *= static_cast<float>(slot.postscale);
  return result;
}

inline Values expected(const Program& program, const Slot& slot, std::size_t round, int rank,
                       const std::vector<int>& joined) {
  const auto& members = program.sets[static_cast<std::size_t>(slot.set)];
  Values result;
  switch (slot.verb) {
    case Verb::allreduce: return reduced(program, slot, round, joined);
    case Verb::broadcast: return given(program, slot, round, slot.root);
    case Verb::allgather:
      for (int from : members) {
        const Values part = given(program, slot, round, from);
        result.insert(result.end(), part.begin(), part.end());
      }
      return result;
    case Verb::reduce_scatter: {
      const Values all = reduced(program, slot, round, {});
      const std::size_t share = all.size() / members.size();
      const auto seat = static_cast<std::size_t>(std::ranges::find(members, rank) - members.begin());
      return {all.begin() + static_cast<std::ptrdiff_t>(seat * share),
              all.begin() + static_cast<std::ptrdiff_t>((seat + 1) * share)};
    }
    case Verb::alltoall:
      for (int from : members) {
        const Values part = given(program, slot, round, from);
        auto begin = part.begin();
        for (int to : members) {
          const auto end = begin + rows_of(slot, round, from, to) * slot.width;
          if (to == rank) result.insert(result.end(), begin, end);
          begin = end;
        }
      }
      return result;
    case Verb::barrier:
    case Verb::join:
    case Verb::adasum:
    case Verb::add_set:
    case Verb::remove_set: break;
  }
  return {};
}

}  // namespace hvd::runtime::rigs
