#pragma once
// The types that elements of a tensor may have in a checkpoint, by the names that torch and NumPy give them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hvd::checkpoint {

// How elements lie in the file. What HDF5 has no type for lies as integers of the same size; the attribute dtype tells.
enum class Storage : std::uint8_t { boolean, i8, u8, i16, u16, i32, u32, i64, u64, f16, f32, f64, c64, c128 };

struct ElementType {
  const char* name;
  std::size_t bytes;
  Storage storage;
};

// Null for a name that there is not.
const ElementType* element_type(std::string_view name) noexcept;
// All names, separated by commas, for messages.
std::string element_type_names();

}  // namespace hvd::checkpoint
