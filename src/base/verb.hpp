#pragma once
// The verbs, and what makes them differ: one row each. Code that must know reads the row; no code lists the verbs.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/data_type.hpp"

namespace hvd {

// The values up to join are part of the C API (horovod.h). There adasum is a reduce operation of allreduce, and process
// sets have functions of their own. The shape of their ops is the list of ranks, or the number of the set.
enum class Verb : std::uint8_t {
  allreduce,
  allgather,
  broadcast,
  barrier,
  reduce_scatter,
  alltoall,
  join,
  adasum,
  add_set,
  remove_set,
};

struct VerbRow {
  Verb verb;
  const char* name;

  // What of the input's shape the ranks must agree on. `all_but_first`: each rank and each call may have another number
  // of rows.
  enum class Agreed : std::uint8_t { nothing, shape, all_but_first } agreed;
  // What the ranks tell each other before the data can move: nothing, their number of rows, or the rows for each seat.
  enum class Sizes : std::uint8_t { nothing, rows, splits } sizes;
  // How large the output is: there is none, as the input, this seat's share of its rows, or known only when the sizes
  // have travelled. The runtime keeps a result of unknown size until the caller takes it.
  enum class Outcome : std::uint8_t { none, as_input, share, unknown } outcome;
  // What a rank that has joined contributes: nothing is needed, zeros, or nothing can take its place.
  enum class Joined : std::uint8_t { nothing, zeros, refused } joined;
  unsigned traits;

  bool moves_data() const { return (traits & moving) != 0; }  // an algorithm carries it out; else a record is all
  bool reduces() const { return (traits & reducing) != 0; }   // reduce operation and scales count
  bool has_root() const { return (traits & rooted) != 0; }
  bool fuses() const { return (traits & fusing) != 0; }  // with others of its kind, into batches of several tensors
  bool takes_floats_only() const { return (traits & floats_only) != 0; }
  bool needs_the_world() const { return (traits & world_only) != 0; }   // no process set
  bool needs_power_of_2() const { return (traits & power_of_2) != 0; }  // ranks
  bool has_tensor() const { return agreed != Agreed::nothing; }
  // The first dimension of the input is a number of rows, which are dealt out or gathered.
  bool has_rows() const { return outcome == Outcome::share || outcome == Outcome::unknown; }

  enum : unsigned {
    moving = 1,
    reducing = 2,
    rooted = 4,
    fusing = 8,
    floats_only = 16,
    world_only = 32,
    power_of_2 = 64,
  };
};

extern const std::array<VerbRow, 10> verb_rows;  // by value of the verb
inline std::span<const VerbRow> verbs() noexcept {
  return verb_rows;
}
inline const VerbRow& row_of(Verb verb) noexcept {
  return verb_rows[static_cast<std::size_t>(verb)];
}
inline const char* name_of(Verb verb) noexcept {
  return row_of(verb).name;
}
inline bool reduces(Verb verb) noexcept {
  return row_of(verb).reduces();
}

}  // namespace hvd
