#pragma once
// Turns records into bytes and back: first the number of the variant's alternative, then the record's fields.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.hpp"

namespace hvd {

// The fields of a record in their order in the bytes: a tuple of pointers to members, specialised for each record. A
// record without a specialisation does not compile.
template <typename Record>
constexpr auto fields_of = Record::is_not_described_here;

template <typename Field>
void put_field(ByteWriter& to, const Field& field) {
  to.put(field);
}
inline void put_field(ByteWriter& to, const std::string& text) {
  to.put_string(text);
}
template <typename Item>
void put_field(ByteWriter& to, const std::vector<Item>& list) {
  to.put(static_cast<std::uint32_t>(list.size()));
  for (const Item& item : list) put_field(to, item);
}

template <typename Field>
void get_field(ByteReader& from, Field& field) {
  field = from.get<Field>();
}
inline void get_field(ByteReader& from, std::string& text) {
  text = from.get_string();
}
template <typename Item>
void get_field(ByteReader& from, std::vector<Item>& list) {
  for (auto left = from.get<std::uint32_t>(); left > 0 && from.ok(); --left) get_field(from, list.emplace_back());
}

// Appends the record's bytes to `out`.
template <typename... Records>
void encode_record(const std::variant<Records...>& record, Buffer& out) {
  ByteWriter to(out);
  to.put(static_cast<std::uint8_t>(record.index()));
  auto write = [&]<typename Record>(const Record& each) {
    std::apply([&](auto... field) { (put_field(to, each.*field), ...); }, fields_of<Record>);
  };
  std::visit(write, record);
}

template <typename Variant, std::size_t index>
std::optional<Variant> decode_alternative(ByteReader& from) {
  std::variant_alternative_t<index, Variant> record;
  std::apply([&](auto... field) { (get_field(from, record.*field), ...); }, fields_of<decltype(record)>);
  if (!from.ok() || !from.at_end()) return std::nullopt;
  return Variant(std::in_place_index<index>, std::move(record));
}

// Decodes all of the bytes. Returns nothing if they are malformed.
template <typename Variant>
std::optional<Variant> decode_record(ConstBytes bytes) {
  ByteReader from(bytes);
  auto wanted = from.get<std::uint8_t>();
  return [&]<std::size_t... indices>(std::index_sequence<indices...>)->std::optional<Variant> {
    using Decoder = std::optional<Variant> (*)(ByteReader&);
    static constexpr Decoder decoders[] = {&decode_alternative<Variant, indices>...};
    return wanted < sizeof...(indices) ? decoders[wanted](from) : std::nullopt;
  }
  (std::make_index_sequence<std::variant_size_v<Variant>>{});
}

}  // namespace hvd
