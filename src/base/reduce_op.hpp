#pragma once
// The reduce operations, with one row of properties for each.
#include <cstddef>
#include <optional>

#include "base/closed_set.hpp"
#include "base/collective.hpp"

namespace hvd {

struct ReduceOpRow {
  const char* name;
};

constexpr std::optional<ReduceOpRow> row_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return ReduceOpRow{"sum"};
    case ReduceOp::min: return ReduceOpRow{"min"};
    case ReduceOp::max: return ReduceOpRow{"max"};
    case ReduceOp::product: return ReduceOpRow{"product"};
  }
  return std::nullopt;
}

inline constexpr std::size_t reduce_op_count = count_of<ReduceOp>([](ReduceOp op) { return row_of(op); });

}  // namespace hvd
