#pragma once
// Types for numbers of different meaning, so that they cannot be mixed up.
#include <compare>
#include <cstdint>
#include <functional>

namespace hvd {

template <typename Tag, typename Number = std::int32_t>
struct Id {
  Number value = 0;

  constexpr Id() = default;
  constexpr explicit Id(Number number) : value(number) {}
  friend constexpr auto operator<=>(Id, Id) = default;
};

using Rank = Id<struct RankTag>;                // the number of a rank, its position in the world
using Seat = Id<struct SeatTag>;                // the position of a rank in a group
using ProcessSetId = Id<struct ProcessSetTag>;  // the number of a process set; 0 is the whole world
// the number that an operation keeps once it was agreed on; equal on all ranks
using SlotId = Id<struct SlotTag>;
using Sequence = Id<struct SequenceTag, std::uint64_t>;  // the position of a batch in the schedule

inline constexpr ProcessSetId global_process_set{0};

}  // namespace hvd

template <typename Tag, typename Number>
struct std::hash<hvd::Id<Tag, Number>> {
  std::size_t operator()(hvd::Id<Tag, Number> id) const noexcept { return std::hash<Number>{}(id.value); }
};
