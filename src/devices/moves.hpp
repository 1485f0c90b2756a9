#pragma once
// What a device moves in one call: a list of runs of elements, with one treatment for all of them.
#include <cstddef>
#include <cstdint>

#include "base/data_type.hpp"

namespace hvd::devices {

// The runs may have any alignment. They must not overlap, except that `from` may be equal to `to` if both types have
// the same size.
struct Move {
  const void* from;  // null for zeros
  void* to;
  std::int64_t count;  // elements
};

// Equal types without a scale are copied as they are; bool is never scaled. Floating types are converted into each
// other: computed in the wider of the two types, at least f32, and rounded once. Integers are scaled in double,
// truncated toward zero and saturate. Integers of different types, and integers and floating types, are not converted.
//
// Results of aborted work are undefined, and floating ones must become NaN (transport::Link::abort). With `aborted`, a
// word in memory that the device allocated on the host, this happens when the moves' turn comes and the word is not 0:
// all `to` of a floating type get NaN. A run with `from` equal to `to` and no scale is then only looked after.
struct Treatment {
  DataType from = DataType::f32;
  DataType to = DataType::f32;
  double scale = 1.0;
  const std::uint32_t* aborted = nullptr;
};

// True if every device can treat elements so.
constexpr bool is_possible(const Treatment& treatment) noexcept {
  return treatment.from == treatment.to || (is_floating(treatment.from) && is_floating(treatment.to));
}

// The rows of tables of conversions: f16, bf16, f32 and f64.
constexpr std::size_t row_of_floating(DataType type) noexcept {
  return static_cast<std::size_t>(type) - static_cast<std::size_t>(DataType::f16);
}
inline constexpr std::size_t floating_types = 4;
constexpr bool are_rows_of_floating_types() noexcept {
  for (int type = 0; type < data_type_count; ++type)
    if (is_floating(static_cast<DataType>(type)) != (row_of_floating(static_cast<DataType>(type)) < floating_types))
      return false;
  return true;
}
static_assert(are_rows_of_floating_types());

}  // namespace hvd::devices
