#include "launcher/messages.hpp"

#include <utility>

namespace hvd::launcher {
namespace {

// One pair of overloads per message: fields in order. The frame's first byte is the alternative's index.
void put(ByteWriter& to, const std::vector<std::string>& list) {
  to.put(static_cast<std::uint32_t>(list.size()));
  for (const std::string& text : list) to.put_string(text);
}
std::vector<std::string> get_list(ByteReader& from) {
  std::vector<std::string> list;
  for (auto left = from.get<std::uint32_t>(); left > 0 && from.ok(); --left) list.emplace_back(from.get_string());
  return list;
}

void write(ByteWriter& to, const Prepare& m) {
  to.put(m.ranks);
  to.put(m.grace_ms);
  to.put(m.tells_bindings);
  to.put_string(m.lifeline);
  to.put_string(m.lifeline_token);
  to.put(m.lifeline_patience_ms);
  to.put(m.dial_ms);
}
void read(ByteReader& from, Prepare& m) {
  m.ranks = from.get<std::int32_t>();
  m.grace_ms = from.get<std::int32_t>();
  m.tells_bindings = from.get<bool>();
  m.lifeline = from.get_string();
  m.lifeline_token = from.get_string();
  m.lifeline_patience_ms = from.get<std::int32_t>();
  m.dial_ms = from.get<std::int32_t>();
}
void write(ByteWriter& to, const Launch& m) {
  to.put(m.rank);
  to.put_string(m.program);
  put(to, m.command);
  put(to, m.environment);
  to.put_string(m.folder);
  to.put(m.local_rank);
  to.put(m.input);
  to.put(m.is_site_launcher);
}
void read(ByteReader& from, Launch& m) {
  m.rank = from.get<Rank>();
  m.program = from.get_string();
  m.command = get_list(from);
  m.environment = get_list(from);
  m.folder = from.get_string();
  m.local_rank = from.get<std::int32_t>();
  m.input = from.get<InputFrom>();
  m.is_site_launcher = from.get<bool>();
}
void write(ByteWriter& to, const Input& m) {
  to.put_string(m.bytes);
  to.put(m.is_last);
}
void read(ByteReader& from, Input& m) {
  m.bytes = from.get_string();
  m.is_last = from.get<bool>();
}
void write(ByteWriter&, const Ask&) {}
void read(ByteReader&, Ask&) {}
void write(ByteWriter& to, const Forward& m) {
  to.put(m.signal);
}
void read(ByteReader& from, Forward& m) {
  m.signal = from.get<std::int32_t>();
}
void write(ByteWriter& to, const End& m) {
  to.put(m.signal);
  to.put(m.grace_ms);
}
void read(ByteReader& from, End& m) {
  m.signal = from.get<std::int32_t>();
  m.grace_ms = from.get<std::int32_t>();
}
void write(ByteWriter& to, const Credit& m) {
  to.put(m.bytes);
}
void read(ByteReader& from, Credit& m) {
  m.bytes = from.get<std::uint32_t>();
}
void write(ByteWriter&, const Dismiss&) {}
void read(ByteReader&, Dismiss&) {}
void write(ByteWriter& to, const Ready& m) {
  to.put_string(m.host);
  to.put_string(m.node_id);
  to.put(m.process);
}
void read(ByteReader& from, Ready& m) {
  m.host = from.get_string();
  m.node_id = from.get_string();
  m.process = from.get<std::int32_t>();
}
void write(ByteWriter& to, const NotReady& m) {
  to.put_string(m.reason);
}
void read(ByteReader& from, NotReady& m) {
  m.reason = from.get_string();
}
void write(ByteWriter& to, const Said& m) {
  to.put_string(m.text);
}
void read(ByteReader& from, Said& m) {
  m.text = from.get_string();
}
void write(ByteWriter& to, const Started& m) {
  to.put(m.rank);
  to.put(m.process);
}
void read(ByteReader& from, Started& m) {
  m.rank = from.get<Rank>();
  m.process = from.get<std::int32_t>();
}
void write(ByteWriter& to, const NotStarted& m) {
  to.put(m.rank);
  to.put(m.error);
  to.put_string(m.step);
  to.put(m.code);
}
void read(ByteReader& from, NotStarted& m) {
  m.rank = from.get<Rank>();
  m.error = from.get<std::int32_t>();
  m.step = from.get_string();
  m.code = from.get<std::int32_t>();
}
void write(ByteWriter& to, const Output& m) {
  to.put(m.rank);
  to.put(m.stream);
  to.put_string(m.bytes);
}
void read(ByteReader& from, Output& m) {
  m.rank = from.get<Rank>();
  m.stream = from.get<Stream>();
  m.bytes = from.get_string();
}
void write(ByteWriter& to, const InputTaken& m) {
  to.put(m.bytes);
  to.put(m.is_closed);
}
void read(ByteReader& from, InputTaken& m) {
  m.bytes = from.get<std::uint32_t>();
  m.is_closed = from.get<bool>();
}
void write(ByteWriter&, const Answered&) {}
void read(ByteReader&, Answered&) {}
void write(ByteWriter& to, const Exited& m) {
  to.put(m.rank);
  to.put(m.wait_status);
  to.put(m.at_ns);
  to.put(m.group_known);
  to.put(m.oom_kills);
  to.put(m.limit_bytes);
  to.put_string(m.group);
}
void read(ByteReader& from, Exited& m) {
  m.rank = from.get<Rank>();
  m.wait_status = from.get<std::int32_t>();
  m.at_ns = from.get<std::int64_t>();
  m.group_known = from.get<bool>();
  m.oom_kills = from.get<std::uint64_t>();
  m.limit_bytes = from.get<std::uint64_t>();
  m.group = from.get_string();
}
void write(ByteWriter& to, const Stopped& m) {
  to.put(m.rank);
  to.put(m.signal);
}
void read(ByteReader& from, Stopped& m) {
  m.rank = from.get<Rank>();
  m.signal = from.get<std::int32_t>();
}
void write(ByteWriter& to, const Told& m) {
  to.put(m.signal);
}
void read(ByteReader& from, Told& m) {
  m.signal = from.get<std::int32_t>();
}
void write(ByteWriter&, const AllGone&) {}
void read(ByteReader&, AllGone&) {}

template <std::size_t index>
std::optional<Message> decode_as(ByteReader& from) {
  std::variant_alternative_t<index, Message> message;
  read(from, message);
  if (!from.ok() || !from.at_end()) return std::nullopt;
  return Message(std::in_place_index<index>, std::move(message));
}

template <std::size_t... indices>
std::optional<Message> decode_any(std::size_t index, ByteReader& from, std::index_sequence<indices...>) {
  using Decoder = std::optional<Message> (*)(ByteReader&);
  static constexpr Decoder decoders[] = {&decode_as<indices>...};
  return index < sizeof...(indices) ? decoders[index](from) : std::nullopt;
}

}  // namespace

void encode(const Message& message, Buffer& out) {
  ByteWriter to(out);
  to.put(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& alternative) { write(to, alternative); }, message);
}

std::optional<Message> decode(ConstBytes content) {
  ByteReader from(content);
  auto index = from.get<std::uint8_t>();
  return decode_any(index, from, std::make_index_sequence<std::variant_size_v<Message>>{});
}

}  // namespace hvd::launcher
