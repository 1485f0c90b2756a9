#include "base/data_type.hpp"

#include <optional>

#include "base/closed_set.hpp"

namespace hvd {

namespace {

struct DataTypeRow {
  const char* name;
  std::size_t bytes;
  bool is_floating;
};

constexpr std::optional<DataTypeRow> row_of(DataType type) {
  switch (type) {
    case DataType::boolean: return DataTypeRow{"bool", 1, false};
    case DataType::u8: return DataTypeRow{"uint8", 1, false};
    case DataType::i8: return DataTypeRow{"int8", 1, false};
    case DataType::u16: return DataTypeRow{"uint16", 2, false};
    case DataType::i16: return DataTypeRow{"int16", 2, false};
    case DataType::i32: return DataTypeRow{"int32", 4, false};
    case DataType::i64: return DataTypeRow{"int64", 8, false};
    case DataType::f16: return DataTypeRow{"float16", 2, true};
    case DataType::bf16: return DataTypeRow{"bfloat16", 2, true};
    case DataType::f32: return DataTypeRow{"float32", 4, true};
    case DataType::f64: return DataTypeRow{"float64", 8, true};
    case DataType::u32: return DataTypeRow{"uint32", 4, false};
    case DataType::u64: return DataTypeRow{"uint64", 8, false};
  }
  return std::nullopt;
}

// What the header says without the rows, because it is asked for every segment.
constexpr bool header_agrees() {
  for (int type = 0; type < data_type_count; ++type)
    if (const auto row = row_of(static_cast<DataType>(type));
        size_of(static_cast<DataType>(type)) != row->bytes ||
        is_floating(static_cast<DataType>(type)) != row->is_floating)
      return false;
  return true;
}
static_assert(count_of<DataType>([](DataType type) { return row_of(type); }) == data_type_count);
static_assert(header_agrees());

}  // namespace

const char* name_of(DataType type) noexcept {
  const auto row = row_of(type);
  return row ? row->name : "unknown";
}

}  // namespace hvd
