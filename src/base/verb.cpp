#include "base/verb.hpp"

#include <algorithm>

namespace hvd {

namespace {

using Agreed = VerbRow::Agreed;
using Sizes = VerbRow::Sizes;
using Outcome = VerbRow::Outcome;
using Joined = VerbRow::Joined;
constexpr unsigned moves = VerbRow::moving;
constexpr unsigned reduces_it = VerbRow::moving | VerbRow::reducing | VerbRow::fusing;
constexpr unsigned adasum_needs = VerbRow::floats_only | VerbRow::world_only | VerbRow::power_of_2;

}  // namespace

// clang-format off
constexpr std::array<VerbRow, 10> verb_rows = {{
    {Verb::allreduce, "allreduce", Agreed::shape, Sizes::nothing, Outcome::as_input, Joined::zeros, reduces_it},
    {Verb::allgather, "allgather", Agreed::all_but_first, Sizes::rows, Outcome::unknown, Joined::refused,
     moves | VerbRow::fusing},
    {Verb::broadcast, "broadcast", Agreed::shape, Sizes::nothing, Outcome::as_input, Joined::refused,
     moves | VerbRow::rooted},
    {Verb::barrier, "barrier", Agreed::nothing, Sizes::nothing, Outcome::none, Joined::nothing, moves},
    {Verb::reduce_scatter, "reducescatter", Agreed::shape, Sizes::nothing, Outcome::share, Joined::refused, reduces_it},
    {Verb::alltoall, "alltoall", Agreed::all_but_first, Sizes::splits, Outcome::unknown, Joined::refused, moves},
    {Verb::join, "join", Agreed::nothing, Sizes::nothing, Outcome::none, Joined::nothing, VerbRow::world_only},
    {Verb::adasum, "adasum", Agreed::shape, Sizes::nothing, Outcome::as_input, Joined::zeros,
     reduces_it | adasum_needs},
    {Verb::add_set, "add_process_set", Agreed::shape, Sizes::nothing, Outcome::none, Joined::refused,
     VerbRow::world_only},
    {Verb::remove_set, "remove_process_set", Agreed::shape, Sizes::nothing, Outcome::none, Joined::refused,
     VerbRow::world_only},
}};
// clang-format on

namespace {

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < verb_rows.size(); ++i)
    if (static_cast<std::size_t>(verb_rows[i].verb) != i) return false;
  return true;
}
static_assert(rows_are_in_order());

// A batch has one root, and fuses_with() does not compare roots.
static_assert(std::ranges::none_of(verb_rows, [](const VerbRow& row) {
  return (row.traits & VerbRow::rooted) != 0 && (row.traits & VerbRow::fusing) != 0;
}));

}  // namespace

}  // namespace hvd
