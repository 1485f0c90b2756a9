#pragma once
// Numbers that must not be mixed up are types of their own.
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

using Rank = Id<struct RankTag>;                         // position in the world
using Seat = Id<struct SeatTag>;                         // position in a group
using ProcessSetId = Id<struct ProcessSetTag>;           // 0 is the whole world
using SlotId = Id<struct SlotTag>;                       // cache slot of an agreed op, equal on all ranks
using Sequence = Id<struct SequenceTag, std::uint64_t>;  // position of a batch in the schedule

inline constexpr ProcessSetId global_process_set{0};

}  // namespace hvd

template <typename Tag, typename Number>
struct std::hash<hvd::Id<Tag, Number>> {
  std::size_t operator()(hvd::Id<Tag, Number> id) const noexcept { return std::hash<Number>{}(id.value); }
};
