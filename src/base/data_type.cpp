#include "base/data_type.hpp"

namespace hvd {

const char* name_of(DataType type) noexcept {
  constexpr const char* names[] = {"bool",  "uint8",   "int8",     "uint16",  "int16",  "int32",
                                   "int64", "float16", "bfloat16", "float32", "float64"};
  return names[static_cast<std::size_t>(type)];
}

}  // namespace hvd
