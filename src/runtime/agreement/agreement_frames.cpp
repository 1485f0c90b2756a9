#include "runtime/agreement/agreement_frames.hpp"

#include <cstddef>
#include <utility>

namespace hvd::runtime {

namespace {

template <typename List>
void put_count(ByteWriter& out, const List& list) {
  out.put(static_cast<std::uint32_t>(list.size()));
}

void put_slots(ByteWriter& out, std::span<const SlotId> slots) {
  put_count(out, slots);
  for (SlotId slot : slots) out.put(slot);
}

void get_slots(ByteReader& in, std::vector<SlotId>& slots) {
  slots.clear();
  auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) slots.push_back(in.get<SlotId>());
}

void put_bytes(ByteWriter& out, ConstBytes bytes) {
  out.put_string({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// An item begins with the number of its kind, which is its index in the variant.
template <std::size_t... kinds>
Result<Item> read_any(ByteReader& in, RecordStorage& storage, std::index_sequence<kinds...>) {
  auto kind = in.get<std::uint8_t>();
  Item item;
  bool is_known = ((kind == kinds && (item = std::variant_alternative_t<kinds, Item>::read(in, storage), true)) || ...);
  if (is_known && in.ok()) return item;
  return broken_frame();
}

}  // namespace

void write_item(ByteWriter& out, const Item& item) {
  out.put(static_cast<std::uint8_t>(item.index()));
  std::visit([&out](const auto& it) { it.write(out); }, item);
}

Result<Item> read_item(ByteReader& in, RecordStorage& storage) {
  return read_any(in, storage, std::make_index_sequence<std::variant_size_v<Item>>());
}

Error broken_frame() {
  return {ErrorCode::mismatch,
          "a message of the agreement between nodes is broken; do all nodes run the same release?"};
}

void PositionItem::write(ByteWriter& out) const {
  out.put(records);
  out.put(read_by_subtree);
}

PositionItem PositionItem::read(ByteReader& in, RecordStorage&) {
  PositionItem item;
  item.records = in.get<std::uint64_t>();
  item.read_by_subtree = in.get<std::uint64_t>();
  return item;
}

void ArrivalsItem::write(ByteWriter& out) const {
  put_slots(out, slots);
}

ArrivalsItem ArrivalsItem::read(ByteReader& in, RecordStorage& storage) {
  get_slots(in, storage.slots);
  return {storage.slots};
}

void OpenedItem::write(ByteWriter& out) const {
  runtime::write(out, name);
  out.put(seen);
}

OpenedItem OpenedItem::read(ByteReader& in, RecordStorage&) {
  OpenedItem item;
  item.name = read_name(in);
  item.seen = in.get<std::uint64_t>();
  return item;
}

void BallotItem::write(ByteWriter& out) const {
  runtime::write(out, name);
  out.put(seen);
  put_count(out, opinions);
  for (const Opinion& it : opinions) {
    out.put(it.rank);
    it.signature.write(out);
  }
}

BallotItem BallotItem::read(ByteReader& in, RecordStorage&) {
  BallotItem item;
  item.name = read_name(in);
  item.seen = in.get<std::uint64_t>();
  auto count = in.get<std::uint32_t>();
  if (count > most_opinions) return {};
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    auto rank = in.get<Rank>();
    item.opinions.push_back({rank, Signature::read(in)});
  }
  return item;
}

void RequestItem::write(ByteWriter& out) const {
  out.put(from);
  put_bytes(out, request);
}

RequestItem RequestItem::read(ByteReader& in, RecordStorage&) {
  RequestItem item;
  item.from = in.get<Rank>();
  item.request = as_bytes(in.get_string());
  return item;
}

void AnswerItem::write(ByteWriter& out) const {
  out.put(question);
  put_count(out, missing);
  for (const std::vector<Rank>& ranks : missing) {
    put_count(out, ranks);
    for (Rank rank : ranks) out.put(rank);
  }
}

AnswerItem AnswerItem::read(ByteReader& in, RecordStorage&) {
  AnswerItem item;
  item.question = in.get<std::uint32_t>();
  auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    auto ranks = in.get<std::uint32_t>();
    item.missing.emplace_back();
    for (std::uint32_t k = 0; k < ranks && in.ok(); ++k) item.missing.back().push_back(in.get<Rank>());
  }
  return item;
}

void RecordItem::write(ByteWriter& out) const {
  put_bytes(out, record);
}

RecordItem RecordItem::read(ByteReader& in, RecordStorage&) {
  return {as_bytes(in.get_string())};
}

void QuestionItem::write(ByteWriter& out) const {
  out.put(question);
  put_slots(out, slots);
  put_count(out, names);
  for (const OpName& name : names) runtime::write(out, name);
}

QuestionItem QuestionItem::read(ByteReader& in, RecordStorage&) {
  QuestionItem item;
  item.question = in.get<std::uint32_t>();
  get_slots(in, item.slots);
  auto count = in.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) item.names.emplace_back(read_name(in));
  return item;
}

void LostItem::write(ByteWriter& out) const {
  out.put(rank);
  out.put_string(why);
}

LostItem LostItem::read(ByteReader& in, RecordStorage&) {
  LostItem item;
  item.rank = in.get<Rank>();
  item.why = in.get_string();
  return item;
}

}  // namespace hvd::runtime
