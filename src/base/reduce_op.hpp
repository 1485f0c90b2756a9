#pragma once
// The reduce operations, with one row of properties for each.
#include <cstddef>
#include <optional>

#include "base/closed_set.hpp"
#include "base/collective.hpp"

namespace hvd {

struct ReduceOpRow {
  const char* name;
  // The operation that gives the same for boolean values, where the greater is their "or" and the lesser their "and".
  ReduceOp on_boolean;
  bool selects;  // the result is one of the values; libraries differ where one is NaN
};

constexpr std::optional<ReduceOpRow> row_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return ReduceOpRow{"sum", ReduceOp::max, false};
    case ReduceOp::min: return ReduceOpRow{"min", ReduceOp::min, true};
    case ReduceOp::max: return ReduceOpRow{"max", ReduceOp::max, true};
    case ReduceOp::product: return ReduceOpRow{"product", ReduceOp::min, false};
  }
  return std::nullopt;
}

inline constexpr std::size_t reduce_op_count = count_of<ReduceOp>([](ReduceOp op) { return row_of(op); });

}  // namespace hvd
