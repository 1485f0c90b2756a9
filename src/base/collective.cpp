#include "base/collective.hpp"

#include "base/reduce_op.hpp"

namespace hvd {

const char* name_of(ReduceOp op) noexcept {
  const auto row = row_of(op);
  return row ? row->name : "an unknown operation";
}

}  // namespace hvd
