#include "runtime/agreement/schedule.hpp"

#include <cstddef>
#include <utility>

#include "base/error_ids.hpp"

namespace hvd::runtime {

namespace {

std::string_view as_text(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename Id>
void write_ids(ByteWriter& out, std::span<const Id> ids) {
  out.put(static_cast<std::uint32_t>(ids.size()));
  out.put_raw(ids.data(), ids.size_bytes());
}

template <typename Id>
std::span<const Id> read_ids(ByteReader& in, std::vector<Id>& storage) {
  auto count = in.get<std::uint32_t>();
  storage.clear();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) storage.push_back(in.get<Id>());
  return storage;
}

// A message begins with the number of its kind, which is its index in the variant.
template <typename Message>
void encode_any(const Message& message, Buffer& out) {
  out.clear();
  ByteWriter writer(out);
  writer.put(static_cast<std::uint8_t>(message.index()));
  std::visit([&writer](const auto& it) { it.write(writer); }, message);
}

template <typename Message, std::size_t... kinds>
Result<Message> decode_any(ConstBytes bytes, RecordStorage& storage, std::index_sequence<kinds...>) {
  ByteReader reader(bytes);
  auto kind = reader.get<std::uint8_t>();
  Message message;
  bool is_known =
      ((kind == kinds && (message = std::variant_alternative_t<kinds, Message>::read(reader, storage), true)) || ...);
  if (is_known && reader.ok()) return message;
  return Error(ErrorCode::system, "a record of the agreement is broken; this is a defect of the runtime");
}

template <typename Message>
Result<Message> decode_any(ConstBytes bytes, RecordStorage& storage) {
  return decode_any<Message>(bytes, storage, std::make_index_sequence<std::variant_size_v<Message>>());
}

}  // namespace

void write(ByteWriter& out, OpNameView name) {
  out.put(name.set);
  out.put_string(name.name);
}

OpNameView read_name(ByteReader& in) {
  auto set = in.get<ProcessSetId>();
  return {set, in.get_string()};
}

void OpRequest::write(ByteWriter& out) const {
  runtime::write(out, name);
  signature.write(out);
  out.put(seen);
}
OpRequest OpRequest::read(ByteReader& in, RecordStorage&) {
  OpNameView name = read_name(in);
  Signature signature = Signature::read(in);
  return {name, std::move(signature), in.get<std::uint64_t>()};
}

void ShutdownRequest::write(ByteWriter& out) const {
  out.put_string(reason);
}
ShutdownRequest ShutdownRequest::read(ByteReader& in, RecordStorage&) {
  return {in.get_string()};
}

void PublishRequest::write(ByteWriter& out) const {
  out.put(set);
  out.put_string(key);
  out.put_string(as_text(value));
}
PublishRequest PublishRequest::read(ByteReader& in, RecordStorage&) {
  auto set = in.get<ProcessSetId>();
  auto key = in.get_string();
  return {set, key, as_bytes(in.get_string())};
}

void StallRequest::write(ByteWriter& out) const {
  out.put(waited_s);
  out.put(missing);
  runtime::write(out, name);
  out.put(final);
  out.put_string(device);
}
StallRequest StallRequest::read(ByteReader& in, RecordStorage&) {
  auto waited_s = in.get<double>();
  auto missing = in.get<Rank>();
  OpNameView name = read_name(in);
  const bool final = in.get<bool>();
  return {waited_s, missing, name, final, in.get_string()};
}

void StopPointRequest::write(ByteWriter& out) const {
  out.put(cause);
  out.put_string(reason);
}
StopPointRequest StopPointRequest::read(ByteReader& in, RecordStorage&) {
  auto cause = in.get<StopCause>();
  return {cause, in.get_string()};
}

void BatchEndedRequest::write(ByteWriter& out) const {
  out.put(set);
  out.put(kind);
}
BatchEndedRequest BatchEndedRequest::read(ByteReader& in, RecordStorage&) {
  auto set = in.get<ProcessSetId>();
  return {set, in.get<DeviceKind>()};
}

void GiveRecord::write(ByteWriter& out) const {
  out.put(slot);
  runtime::write(out, name);
  signature.write(out);
}
GiveRecord GiveRecord::read(ByteReader& in, RecordStorage&) {
  auto slot = in.get<SlotId>();
  OpNameView name = read_name(in);
  return {slot, name, Signature::read(in)};
}

void BatchRecord::write(ByteWriter& out) const {
  out.put(sequence);
  out.put(set);
  write_ids(out, slots);
}
BatchRecord BatchRecord::read(ByteReader& in, RecordStorage& storage) {
  auto sequence = in.get<Sequence>();
  auto set = in.get<ProcessSetId>();
  return {sequence, set, read_ids(in, storage.slots)};
}

void FailRecord::write(ByteWriter& out) const {
  runtime::write(out, name);
  out.put(code);
  out.put_string(message);
}
FailRecord FailRecord::read(ByteReader& in, RecordStorage&) {
  OpNameView name = read_name(in);
  auto code = in.get<ErrorCode>();
  return {name, code, in.get_string()};
}

void AddSetRecord::write(ByteWriter& out) const {
  write_ids(out, ranks);
}
AddSetRecord AddSetRecord::read(ByteReader& in, RecordStorage& storage) {
  return {read_ids(in, storage.ranks)};
}

void ShutdownRecord::write(ByteWriter& out) const {
  out.put(by);
  out.put_string(reason);
  out.put_string(id);
}
ShutdownRecord ShutdownRecord::read(ByteReader& in, RecordStorage&) {
  auto by = in.get<Rank>();
  auto reason = in.get_string();
  return {by, reason, known_id(in.get_string())};
}

void PublishedRecord::write(ByteWriter& out) const {
  out.put(by);
  out.put(set);
  out.put_string(key);
  out.put_string(as_text(value));
}
PublishedRecord PublishedRecord::read(ByteReader& in, RecordStorage&) {
  auto by = in.get<Rank>();
  auto set = in.get<ProcessSetId>();
  auto key = in.get_string();
  return {by, set, key, as_bytes(in.get_string())};
}

void StopPointRecord::write(ByteWriter& out) const {
  out.put(by);
  out.put(cause);
  out.put_string(reason);
}
StopPointRecord StopPointRecord::read(ByteReader& in, RecordStorage&) {
  auto by = in.get<Rank>();
  auto cause = in.get<StopCause>();
  return {by, cause, in.get_string()};
}

void encode(const Request& request, Buffer& out) {
  encode_any(request, out);
}
Result<Request> decode_request(ConstBytes bytes) {
  RecordStorage none;
  return decode_any<Request>(bytes, none);
}

void encode(const Record& record, Buffer& out) {
  encode_any(record, out);
}
Result<Record> decode_record(ConstBytes bytes, RecordStorage& storage) {
  return decode_any<Record>(bytes, storage);
}

}  // namespace hvd::runtime
