#pragma once
// The element types that can be communicated.
#include <cstddef>
#include <cstdint>

namespace hvd {

// The values are part of the C API (horovod.h).
enum class DataType : std::uint8_t { boolean, u8, i8, u16, i16, i32, i64, f16, bf16, f32, f64, u32, u64 };
inline constexpr int data_type_count = 13;

constexpr std::size_t size_of(DataType type) noexcept {
  constexpr std::size_t sizes[] = {1, 1, 1, 2, 2, 4, 8, 2, 2, 4, 8, 4, 8};
  return sizes[static_cast<std::size_t>(type)];
}

// Returns the name as Horovod spells it: "bool", "uint8", … "float64", "uint32", "uint64".
const char* name_of(DataType type) noexcept;

constexpr bool is_floating(DataType type) noexcept {
  return type == DataType::f16 || type == DataType::bf16 || type == DataType::f32 || type == DataType::f64;
}

}  // namespace hvd
