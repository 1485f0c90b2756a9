#pragma once
// A random program of collectives: the actions of all ranks, drawn from a seed. Some things each rank may choose
// freely: order, threads, groups, where a tensor is in memory. It draws these from the same seed when it plays its part
// (player.hpp).
#include <cstdint>
#include <string>
#include <vector>

#include "horovod.h"
#include "programs/dice.hpp"

namespace hvd::programs {

// The properties of an operation that all its ranks must agree on.
struct Kind {
  hvd_verb verb = HVD_ALLREDUCE;
  hvd_dtype dtype = HVD_FLOAT32;
  hvd_reduce_op op = HVD_SUM;
  std::vector<std::int64_t> shape;  // the shape of one row if each rank has its own number of rows
  double prescale = 1, postscale = 1;
  int root = 0;
  int most_rows = 0;              // the largest number of rows of a rank, if ranks may differ
  bool lacks_dimensions = false;  // the program makes this mistake on purpose

  bool has_own_rows() const { return verb == HVD_ALLGATHER || verb == HVD_ALLTOALL; }
  std::int64_t count() const;  // number of elements of the tensor, or of one row
};

// How one rank differs from the others in one step.
enum class Fault : std::uint8_t { none, dtype, shape, op, root, scale, verb, use, no_rows };

// An operation that is repeated in the steps of a phase.
struct Use {
  std::string name;
  int set = 0;  // index of the process set in Program::sets
  bool is_transient = false;
  int group = 0;            // uses with the same number are one group; 0: no group
  std::vector<Kind> kinds;  // kinds that are used in turn
  int period = 1;           // how many steps use a kind before the next kind
  std::uint64_t steps = ~0ull;
  Fault fault = Fault::none;
  int fault_step = 0, odd_place = 0;  // odd_place: the rank that differs, as a place in the set

  const Kind& kind_in(int step) const { return kinds[static_cast<std::size_t>(step / period) % kinds.size()]; }
  bool is_in(int step) const { return (steps >> (step % 64) & 1) != 0; }
  bool is_faulty(int step) const { return fault != Fault::none && step == fault_step; }
};

// A change of the process sets that all ranks make while the steps of the phase run.
struct Change {
  enum class What : std::uint8_t { add, remove, add_again, remove_unknown, disagree } what = What::add;
  int set = 0;
  bool has_pending = false;  // remove: some of the members have submitted an operation
};

struct Phase {
  int steps = 1;
  std::vector<Use> uses;
  std::vector<Change> changes;
  bool is_in_lockstep = false;     // one thread per rank, equal order, each waited for before the next
  std::vector<int> join_after;     // by rank: how many steps use the world; empty: nobody joins
  bool joins_before_wait = false;  // the last operations may be under way when a rank joins
};

struct ProcessSet {
  std::vector<int> ranks;  // the ranks in ascending order
  bool is_static = false;
};

enum class Ending : std::uint8_t { in_order, with_pending, while_threads_submit };

struct Program {
  std::uint64_t seed = 0;
  std::vector<int> nodes;  // the number of ranks on each node
  std::int64_t cache_capacity = 1024, fusion_threshold = 128 << 20, chunk = 256 << 10;
  bool groups_do_not_mix = false;
  std::vector<ProcessSet> sets;  // the first is the world
  std::vector<Phase> phases;
  Ending ending = Ending::in_order;

  int ranks() const { return static_cast<int>(sets.front().ranks.size()); }
};

// The properties that a drawn program must have.
struct Wanted {
  enum class Mix : std::uint8_t { everything, overlapping_sets } mix = Mix::everything;
  int ranks = 0;  // number of ranks; 0: any number
};
Program draw_program(std::uint64_t seed, const Wanted& wanted);

// A text for people, with a line per phase, use and change.
std::string text_of(const Program& program);
std::string text_of(const Kind& kind);

// A rank's own choices. They depend only on the seed and the place in the program.
// number of rows of a rank in an allgather
std::int64_t rows_of(const Program& program, int phase, int use, int step, int rank);
// number of rows between two ranks in an alltoall
std::int64_t rows_between(const Program& program, int phase, int use, int step, int from, int to);
// true if an alltoall is called without splits
bool has_equal_splits(const Program& program, int phase, int use, int step);

}  // namespace hvd::programs
