#pragma once
// The operation that ranks submit in the agreement's tests: an allreduce of floats.
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/operations/signature.hpp"

namespace hvd::testing {

inline runtime::Signature floats(std::vector<std::int64_t> shape, bool transient = false) {
  runtime::Signature signature;
  signature.shape = std::move(shape);
  signature.transient = transient;
  return signature;
}

}  // namespace hvd::testing
