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
  bool selects;       // the result is one of the values; libraries differ where one is NaN
  bool takes_floats;  // else it is for integers and boolean values alone
};

constexpr std::optional<ReduceOpRow> row_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return ReduceOpRow{"sum", ReduceOp::max, false, true};
    case ReduceOp::min: return ReduceOpRow{"min", ReduceOp::min, true, true};
    case ReduceOp::max: return ReduceOpRow{"max", ReduceOp::max, true, true};
    case ReduceOp::product: return ReduceOpRow{"product", ReduceOp::min, false, true};
  }
  return std::nullopt;
}

inline constexpr std::size_t reduce_op_count = count_of<ReduceOp>([](ReduceOp op) { return row_of(op); });

// A new operation that is neither on boolean values needs kernels of its own for them.
static_assert(
    [] {
      for (std::size_t i = 0; i < reduce_op_count; ++i) {
        const ReduceOp on = row_of(static_cast<ReduceOp>(i))->on_boolean;
        if (on != ReduceOp::min && on != ReduceOp::max) return false;
      }
      return true;
    }(),
    "devices/host/reduce_integers.cpp and native/mpi/calls.cpp know only \"and\" and \"or\" of boolean values");

// True if there is a kernel for the type.
constexpr bool takes(ReduceOp op, DataType type) noexcept {
  return row_of(op)->takes_floats || !is_floating(type);
}

}  // namespace hvd
