#pragma once
// The verbs, with one row of properties for each. Code that depends on the verb reads a property in its row instead of
// comparing verbs.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/data_type.hpp"

namespace hvd {

// The values up to `join` are part of the C API (horovod.h). The later ones have other forms in the C API: adasum is a
// reduce operation of allreduce, and process sets have functions of their own. The shape of an operation on process
// sets is the ranks as bits (runtime/operations/process_sets.hpp), or the number of the set.
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

  // The part of the input's shape on which the ranks must agree. With `all_but_first` the number of rows may differ
  // between ranks and between calls.
  enum class Agreed : std::uint8_t { nothing, shape, all_but_first } agreed;
  // The numbers that the ranks tell each other before the data can move: none, each rank's number of rows, or the rows
  // for each seat.
  enum class Sizes : std::uint8_t { nothing, rows, splits } sizes;
  // The size of the output: there is no output, the size of the input, this seat's share of the rows, or a size that is
  // known only after the numbers were exchanged. The runtime keeps a result of unknown size until the caller takes it.
  enum class Outcome : std::uint8_t { none, as_input, share, unknown } outcome;
  // The contribution of a rank that has joined: none is needed, zeros, or the operation is refused because nothing can
  // replace the rank's tensors.
  enum class Joined : std::uint8_t { nothing, zeros, refused } joined;
  unsigned traits;

  // an algorithm does the operation; other verbs only change the state of the ranks
  bool moves_data() const { return (traits & moving) != 0; }
  bool reduces() const { return (traits & reducing) != 0; }  // the reduce operation and the scales have a meaning
  bool has_root() const { return (traits & rooted) != 0; }
  bool fuses() const { return (traits & fusing) != 0; }  // several operations of the verb may travel in one batch
  bool takes_floats_only() const { return (traits & floats_only) != 0; }
  bool needs_the_world() const { return (traits & world_only) != 0; }   // process sets are not supported
  bool needs_power_of_2() const { return (traits & power_of_2) != 0; }  // the number of ranks must be a power of two
  bool has_tensor() const { return agreed != Agreed::nothing; }
  // True if the first dimension of the input is a number of rows that are distributed or gathered.
  bool has_rows() const {
    switch (outcome) {
      case Outcome::none:
      case Outcome::as_input: return false;
      case Outcome::share:
      case Outcome::unknown: return true;
    }
    return false;
  }

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

inline constexpr std::size_t verb_count = 10;
extern const std::array<VerbRow, verb_count> verb_rows;  // the rows are in the order of the verbs' values
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
