#pragma once
// The value of an entry as bytes, for ranks that do not open the file: the number of its type, then the value.
//
// The functions put_value() and get_value() are the table of the types: a type without them does not compile, and a
// number without a type is an error.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/bytes.hpp"
#include "checkpoint/state.hpp"

namespace hvd::checkpoint {

template <typename T>
void put_value(ByteWriter&, const T&) = delete;  // instead of a conversion to one of the types below
inline void put_value(ByteWriter&, const Group&) {}
inline void put_value(ByteWriter&, const None&) {}
inline void put_value(ByteWriter& writer, const bool& value) {
  writer.put(value);
}
inline void put_value(ByteWriter& writer, const std::int64_t& value) {
  writer.put(value);
}
inline void put_value(ByteWriter& writer, const double& value) {
  writer.put(value);
}
inline void put_value(ByteWriter& writer, const std::string& value) {
  writer.put_string(value);
}
inline void put_value(ByteWriter& writer, const Tensor& tensor) {
  writer.put_string(tensor.dtype);
  writer.put_string(tensor.unit);
  writer.put(static_cast<std::uint32_t>(tensor.shape.size()));
  for (std::int64_t extent : tensor.shape) writer.put(extent);
}

inline void get_value(ByteReader&, Group&) {}
inline void get_value(ByteReader&, None&) {}
inline void get_value(ByteReader& reader, bool& value) {
  value = reader.get<bool>();
}
inline void get_value(ByteReader& reader, std::int64_t& value) {
  value = reader.get<std::int64_t>();
}
inline void get_value(ByteReader& reader, double& value) {
  value = reader.get<double>();
}
inline void get_value(ByteReader& reader, std::string& value) {
  value = reader.get_string();
}
inline void get_value(ByteReader& reader, Tensor& tensor) {
  tensor.dtype = reader.get_string();
  tensor.unit = reader.get_string();
  tensor.shape.resize(std::min<std::size_t>(reader.get<std::uint32_t>(), most_dimensions));
  for (std::int64_t& extent : tensor.shape) extent = reader.get<std::int64_t>();
}

template <typename Content>
void put_content(ByteWriter& writer, const Content& content) {
  writer.put(static_cast<std::uint8_t>(content.index()));
  std::visit([&](const auto& value) { put_value(writer, value); }, content);
}

// Returns nothing if there is no type of the number.
template <typename Content>
std::optional<Content> get_content(ByteReader& reader) {
  const std::size_t number = reader.get<std::uint8_t>();
  std::optional<Content> found;
  [&]<std::size_t... index>(std::index_sequence<index...>) {
    auto get = [&]<std::size_t at>(std::integral_constant<std::size_t, at>) {
      std::variant_alternative_t<at, Content> value{};
      get_value(reader, value);
      found.emplace(std::in_place_index<at>, std::move(value));
    };
    ((number == index ? get(std::integral_constant<std::size_t, index>{}) : void()), ...);
  }
  (std::make_index_sequence<std::variant_size_v<Content>>{});
  return found;
}

}  // namespace hvd::checkpoint
