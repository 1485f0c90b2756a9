#pragma once
// Counts the values of a closed set: an enum whose values have a row each. The row is given by a switch over the enum
// without a default, so that the compiler refuses a value without a row (-Wswitch). What is sized by hand is compared
// with the count by a static_assert.
#include <cstddef>

namespace hvd {

// `row_of` returns an optional row; empty for what is no value of the enum. The values are 0, 1, 2 and so on.
template <typename Enum, typename RowOf>
consteval std::size_t count_of(RowOf row_of) {
  std::size_t count = 0;
  while (row_of(static_cast<Enum>(count))) ++count;
  return count;
}

}  // namespace hvd
