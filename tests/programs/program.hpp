#pragma once
// A random program of collectives: what all ranks do, drawn from a seed. What each rank is free to do in its own way
// (order, threads, groups, where a tensor lies) it draws from the same seed when it plays its part (player.hpp).
#include <cstdint>
#include <string>
#include <vector>

#include "horovod.h"
#include "programs/dice.hpp"

namespace hvd::programs {

// What ranks have to agree on about an operation.
struct Kind {
  hvd_verb verb = HVD_ALLREDUCE;
  hvd_dtype dtype = HVD_FLOAT32;
  hvd_reduce_op op = HVD_SUM;
  std::vector<std::int64_t> shape;  // where rows are each rank's own affair: of one row
  double prescale = 1, postscale = 1;
  int root = 0;
  int most_rows = 0;              // of a rank, where they are its own affair
  bool lacks_dimensions = false;  // by mistake

  bool has_own_rows() const { return verb == HVD_ALLGATHER || verb == HVD_ALLTOALL; }
  std::int64_t count() const;  // elements, or those of a row
};

// How one rank differs from the others, once.
enum class Fault : std::uint8_t { none, dtype, shape, op, root, scale, verb, use, no_rows };

// An operation that comes again in the steps of a phase.
struct Use {
  std::string name;
  int set = 0;  // index in Program::sets
  bool is_transient = false;
  int group = 0;            // those of one number carry one group's name; 0: none
  std::vector<Kind> kinds;  // in turn
  int period = 1;           // steps before the next kind's turn
  std::uint64_t steps = ~0ull;
  Fault fault = Fault::none;
  int fault_step = 0, odd_place = 0;  // the place in the set of the rank that differs

  const Kind& kind_in(int step) const { return kinds[static_cast<std::size_t>(step / period) % kinds.size()]; }
  bool is_in(int step) const { return (steps >> (step % 64) & 1) != 0; }
  bool is_faulty(int step) const { return fault != Fault::none && step == fault_step; }
};

// What all ranks do to the process sets, one after the other, while the steps of the phase run.
struct Change {
  enum class What : std::uint8_t { add, remove, add_again, remove_unknown, disagree } what = What::add;
  int set = 0;
  bool has_pending = false;  // remove: some members, not all, have submitted an operation
};

struct Phase {
  int steps = 1;
  std::vector<Use> uses;
  std::vector<Change> changes;
  bool is_in_lockstep = false;     // one thread per rank, the same order everywhere, each waited for before the next
  std::vector<int> join_after;     // by rank: steps with operations of the world; empty: nobody joins
  bool joins_before_wait = false;  // the last operations may be under way when a rank joins
};

struct ProcessSet {
  std::vector<int> ranks;  // ascending
  bool is_static = false;
};

enum class Ending : std::uint8_t { in_order, with_pending, while_threads_submit };

struct Program {
  std::uint64_t seed = 0;
  std::vector<int> nodes;  // ranks on each
  std::int64_t cache_capacity = 1024, fusion_threshold = 128 << 20, chunk = 256 << 10;
  bool groups_do_not_mix = false;
  std::vector<ProcessSet> sets;  // the first is the world
  std::vector<Phase> phases;
  Ending ending = Ending::in_order;

  int ranks() const { return static_cast<int>(sets.front().ranks.size()); }
};

// What a generator shall draw.
struct Wish {
  enum class Mix : std::uint8_t { everything, overlapping_sets } mix = Mix::everything;
  int ranks = 0;  // 0: any number
};
Program draw_program(std::uint64_t seed, const Wish& wish);

// For people: a line per phase, use and change.
std::string text_of(const Program& program);
std::string text_of(const Kind& kind);

// This rank's share of what is free. All of them are functions of seed and place alone.
std::int64_t rows_of(const Program& program, int phase, int use, int step, int rank);               // allgather
std::int64_t rows_between(const Program& program, int phase, int use, int step, int from, int to);  // alltoall
bool has_equal_splits(const Program& program, int phase, int use, int step);                        // alltoall

}  // namespace hvd::programs
