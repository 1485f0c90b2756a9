#include "base/verb.hpp"

#include <algorithm>
#include <optional>

#include "base/closed_set.hpp"

namespace hvd {

namespace {

using Agreed = VerbRow::Agreed;
using Sizes = VerbRow::Sizes;
using Outcome = VerbRow::Outcome;
using Joined = VerbRow::Joined;
constexpr unsigned moves = VerbRow::moving;
constexpr unsigned reduces_it = VerbRow::moving | VerbRow::reducing | VerbRow::fusing;
constexpr unsigned adasum_needs = VerbRow::floats_only | VerbRow::world_only | VerbRow::power_of_2;

// clang-format off
constexpr std::optional<VerbRow> row_for(Verb verb) {
  switch (verb) {
    case Verb::allreduce:
      return VerbRow{verb, "allreduce", Agreed::shape, Sizes::nothing, Outcome::as_input, Joined::zeros, reduces_it};
    case Verb::allgather:
      return VerbRow{verb, "allgather", Agreed::all_but_first, Sizes::rows, Outcome::unknown, Joined::refused,
                     moves | VerbRow::fusing};
    case Verb::broadcast:
      return VerbRow{verb, "broadcast", Agreed::shape, Sizes::nothing, Outcome::as_input, Joined::refused,
                     moves | VerbRow::rooted};
    case Verb::barrier:
      return VerbRow{verb, "barrier", Agreed::nothing, Sizes::nothing, Outcome::none, Joined::nothing, moves};
    case Verb::reduce_scatter:
      return VerbRow{verb, "reducescatter", Agreed::shape, Sizes::nothing, Outcome::share, Joined::refused,
                     reduces_it};
    case Verb::alltoall:
      return VerbRow{verb, "alltoall", Agreed::all_but_first, Sizes::splits, Outcome::unknown, Joined::refused,
                     moves};
    case Verb::join:
      return VerbRow{verb, "join", Agreed::nothing, Sizes::nothing, Outcome::none, Joined::nothing,
                     VerbRow::world_only};
    case Verb::adasum:
      return VerbRow{verb, "adasum", Agreed::shape, Sizes::nothing, Outcome::as_input, Joined::zeros,
                     reduces_it | adasum_needs};
    case Verb::add_set:
      return VerbRow{verb, "add_process_set", Agreed::shape, Sizes::nothing, Outcome::none, Joined::refused,
                     VerbRow::world_only};
    case Verb::remove_set:
      return VerbRow{verb, "remove_process_set", Agreed::shape, Sizes::nothing, Outcome::none, Joined::refused,
                     VerbRow::world_only};
  }
  return std::nullopt;
}
// clang-format on
static_assert(count_of<Verb>([](Verb verb) { return row_for(verb); }) == verb_count);

constexpr std::array<VerbRow, verb_count> all_rows() {
  std::array<VerbRow, verb_count> rows{};
  for (std::size_t verb = 0; verb < verb_count; ++verb) rows[verb] = *row_for(static_cast<Verb>(verb));
  return rows;
}

}  // namespace

constexpr std::array<VerbRow, verb_count> verb_rows = all_rows();

// A batch has one root, and fuses_with() does not compare roots.
static_assert(std::ranges::none_of(verb_rows, [](const VerbRow& row) {
  return (row.traits & VerbRow::rooted) != 0 && (row.traits & VerbRow::fusing) != 0;
}));
// With these outcomes every rank has an input and gets a result: check_use() in api/operations.cpp and
// BatchOfTensors::data() in runtime/lanes/batch.cpp take that for granted.
static_assert(std::ranges::none_of(verb_rows, [](const VerbRow& row) {
  return (row.traits & VerbRow::rooted) != 0 && (row.outcome == Outcome::share || row.outcome == Outcome::unknown);
}));

}  // namespace hvd
