#include "checkpoint/element_type.hpp"

namespace hvd::checkpoint {
namespace {

constexpr ElementType types[] = {
    {"bool", 1, Storage::boolean},       {"uint8", 1, Storage::u8},          {"int8", 1, Storage::i8},
    {"uint16", 2, Storage::u16},         {"int16", 2, Storage::i16},         {"uint32", 4, Storage::u32},
    {"int32", 4, Storage::i32},          {"uint64", 8, Storage::u64},        {"int64", 8, Storage::i64},
    {"float16", 2, Storage::f16},        {"bfloat16", 2, Storage::u16},      {"float32", 4, Storage::f32},
    {"float64", 8, Storage::f64},        {"complex64", 8, Storage::c64},     {"complex128", 16, Storage::c128},
    {"float8_e4m3fn", 1, Storage::u8},   {"float8_e5m2", 1, Storage::u8},    {"float8_e4m3fnuz", 1, Storage::u8},
    {"float8_e5m2fnuz", 1, Storage::u8}, {"float8_e8m0fnu", 1, Storage::u8},
};

}  // namespace

const ElementType* element_type(std::string_view name) noexcept {
  for (const ElementType& type : types)
    if (name == type.name) return &type;
  return nullptr;
}

std::string element_type_names() {
  std::string names;
  for (const ElementType& type : types) names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

}  // namespace hvd::checkpoint
