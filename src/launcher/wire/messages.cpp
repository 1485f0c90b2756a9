#include "launcher/wire/messages.hpp"

#include <tuple>
#include <utility>

namespace hvd::launcher {
namespace {

// The fields of each message, in the order in which they travel. A frame's first byte is the alternative's index.
template <typename M>
constexpr auto fields_of = M::is_not_described_here;
template <>
constexpr auto fields_of<Prepare> = std::tuple(&Prepare::ranks, &Prepare::grace_ms, &Prepare::tells_bindings,
                                               &Prepare::lifeline, &Prepare::lifeline_token,
                                               &Prepare::lifeline_patience_ms, &Prepare::dial_ms);
template <>
constexpr auto fields_of<Launch> = std::tuple(&Launch::rank, &Launch::program, &Launch::command, &Launch::environment,
                                              &Launch::folder, &Launch::local_rank, &Launch::input,
                                              &Launch::is_site_launcher);
template <>
constexpr auto fields_of<Input> = std::tuple(&Input::bytes, &Input::is_last);
template <>
constexpr auto fields_of<Ask> = std::tuple();
template <>
constexpr auto fields_of<Forward> = std::tuple(&Forward::signal);
template <>
constexpr auto fields_of<End> = std::tuple(&End::signal, &End::grace_ms);
template <>
constexpr auto fields_of<Credit> = std::tuple(&Credit::bytes);
template <>
constexpr auto fields_of<Dismiss> = std::tuple();
template <>
constexpr auto fields_of<Ready> = std::tuple(&Ready::host, &Ready::node_id, &Ready::process);
template <>
constexpr auto fields_of<NotReady> = std::tuple(&NotReady::reason);
template <>
constexpr auto fields_of<Said> = std::tuple(&Said::text);
template <>
constexpr auto fields_of<Started> = std::tuple(&Started::rank, &Started::process);
template <>
constexpr auto fields_of<NotStarted> = std::tuple(&NotStarted::rank, &NotStarted::error, &NotStarted::step,
                                                  &NotStarted::code);
template <>
constexpr auto fields_of<Output> = std::tuple(&Output::rank, &Output::stream, &Output::bytes);
template <>
constexpr auto fields_of<InputTaken> = std::tuple(&InputTaken::bytes, &InputTaken::is_closed);
template <>
constexpr auto fields_of<Answered> = std::tuple();
template <>
constexpr auto fields_of<Exited> = std::tuple(&Exited::rank, &Exited::wait_status, &Exited::at_ns, &Exited::group_known,
                                              &Exited::oom_kills, &Exited::limit_bytes, &Exited::group);
template <>
constexpr auto fields_of<Stopped> = std::tuple(&Stopped::rank, &Stopped::signal, &Stopped::process);
template <>
constexpr auto fields_of<Told> = std::tuple(&Told::signal);
template <>
constexpr auto fields_of<AllGone> = std::tuple();

template <typename Field>
void put(ByteWriter& to, const Field& field) {
  to.put(field);
}
void put(ByteWriter& to, const std::string& text) {
  to.put_string(text);
}
void put(ByteWriter& to, const std::vector<std::string>& list) {
  to.put(static_cast<std::uint32_t>(list.size()));
  for (const std::string& text : list) to.put_string(text);
}

template <typename Field>
void get(ByteReader& from, Field& field) {
  field = from.get<Field>();
}
void get(ByteReader& from, std::string& text) {
  text = from.get_string();
}
void get(ByteReader& from, std::vector<std::string>& list) {
  for (auto left = from.get<std::uint32_t>(); left > 0 && from.ok(); --left) list.emplace_back(from.get_string());
}

template <typename Message, std::size_t index>
std::optional<Message> decode_as(ByteReader& from) {
  std::variant_alternative_t<index, Message> message;
  std::apply([&](auto... field) { (get(from, message.*field), ...); }, fields_of<decltype(message)>);
  if (!from.ok() || !from.at_end()) return std::nullopt;
  return Message(std::in_place_index<index>, std::move(message));
}

template <typename Message, std::size_t... indices>
std::optional<Message> decode_any(std::size_t index, ByteReader& from, std::index_sequence<indices...>) {
  using Decoder = std::optional<Message> (*)(ByteReader&);
  static constexpr Decoder decoders[] = {&decode_as<Message, indices>...};
  return index < sizeof...(indices) ? decoders[index](from) : std::nullopt;
}

}  // namespace

template <typename Message>
void encode(const Message& message, Buffer& out) {
  ByteWriter to(out);
  to.put(static_cast<std::uint8_t>(message.index()));
  auto write = [&]<typename M>(const M& m) {
    std::apply([&](auto... field) { (put(to, m.*field), ...); }, fields_of<M>);
  };
  std::visit(write, message);
}

template <typename Message>
std::optional<Message> decode(ConstBytes content) {
  ByteReader from(content);
  auto index = from.get<std::uint8_t>();
  return decode_any<Message>(index, from, std::make_index_sequence<std::variant_size_v<Message>>{});
}

template void encode(const Order&, Buffer&);
template void encode(const Report&, Buffer&);
template std::optional<Order> decode(ConstBytes);
template std::optional<Report> decode(ConstBytes);

}  // namespace hvd::launcher
