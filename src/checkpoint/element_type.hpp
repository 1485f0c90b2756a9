#pragma once
// The element types that a tensor may have in a checkpoint, with the names that torch and NumPy use.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hvd::checkpoint {

// The form of elements in the file. If HDF5 has no such type, elements are stored as integers of the same size, and the
// attribute dtype has the type's name.
enum class Storage : std::uint8_t { boolean, i8, u8, i16, u16, i32, u32, i64, u64, f16, f32, f64, c64, c128 };

struct ElementType {
  const char* name;
  std::size_t bytes;
  Storage storage;
};

// Returns null if there is no type of this name.
const ElementType* element_type(std::string_view name) noexcept;
// Returns all names, separated by commas, for messages.
std::string element_type_names();

}  // namespace hvd::checkpoint
