#include "base/collective.hpp"

#include <cstddef>

namespace hvd {

const char* name_of(ReduceOp op) noexcept {
  constexpr const char* names[] = {"sum", "min", "max", "product"};
  return names[static_cast<std::size_t>(op)];
}

}  // namespace hvd
