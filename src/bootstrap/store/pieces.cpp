#include "bootstrap/store/pieces.hpp"

#include <memory>
#include <utility>

namespace hvd::bootstrap {

using store::Verb;

void StorePieces::answer(std::uint64_t connection, Buffer message) {
  options_.answer(connection, std::make_shared<store::Message>(store::Message{std::move(message)}));
}

void StorePieces::answer_failed(std::uint64_t connection, std::uint32_t ticket, const Error& error) {
  Buffer buffer = store::message(Verb::failed, ticket);
  ByteWriter out(buffer);
  out.put(static_cast<std::uint8_t>(error.code));
  out.put_string(error.message);
  answer(connection, std::move(buffer));
}

void StorePieces::admit(std::uint64_t connection, std::uint32_t ticket) {
  visitors_.try_emplace(connection);
  Buffer buffer = store::message(Verb::welcome, ticket);
  ByteWriter(buffer).put_string(options_.job);
  answer(connection, std::move(buffer));
}

void StorePieces::left(std::uint64_t connection) {
  visitors_.erase(connection);
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second.connection == connection; });
}

bool StorePieces::handle(std::uint64_t connection, ConstBytes message) {
  ByteReader in(message);
  auto verb = static_cast<Verb>(in.get<std::uint8_t>());
  auto ticket = in.get<std::uint32_t>();
  if (!in.ok()) return false;
  switch (verb) {
    case Verb::put: return put(connection, ticket, in);
    case Verb::publish: return publish(connection, ticket, in);
    case Verb::fetch: return fetch(connection, ticket, in);
    case Verb::ended: {
      Rank rank{in.get<std::int32_t>()};
      std::string how(in.get_string());
      if (!in.ok() || !in.at_end()) return false;
      if (auto told = options_.rank_ended(rank, how); !told) answer_failed(connection, ticket, told.error());
      else answer(connection, store::message(Verb::done, ticket));
      return true;
    }
    case Verb::leave:
      if (!in.at_end()) return false;
      left(connection);
      if (ticket != 0) answer(connection, store::message(Verb::done, ticket));
      return true;
    case Verb::hello:
    case Verb::get:
    case Verb::fence:
    case Verb::abort:
    case Verb::welcome:
    case Verb::done:
    case Verb::value:
    case Verb::failed:
    case Verb::stranger:
    case Verb::card:
    case Verb::exchange:
    case Verb::piece:
    case Verb::all:
    case Verb::absent:
    case Verb::assign:
    case Verb::assigned:
    case Verb::news: break;  // no request to this part of the store
  }
  return false;
}

bool StorePieces::put(std::uint64_t connection, std::uint32_t ticket, ByteReader& in) {
  std::string key(in.get_string());
  auto at = in.get<std::uint64_t>();
  ConstBytes piece = as_bytes(in.get_string());
  if (!in.ok() || !in.at_end() || key.empty() || key.size() > store::largest_key) return false;
  Value& value = visitors_[connection][key];
  if (at == 0) {
    value = {};
    value.number = ++values_begun_;
  }
  if (at != value.bytes) return false;
  if (!piece.empty()) {
    Buffer message = store::message(Verb::piece, value.number);
    ByteWriter(message).put_raw(piece.data(), piece.size());
    value.pieces.push_back(std::make_shared<store::Message>(store::Message{std::move(message)}));
    value.bytes += piece.size();
  }
  answer(connection, store::message(Verb::done, ticket));
  return true;
}

bool StorePieces::publish(std::uint64_t connection, std::uint32_t ticket, ByteReader& in) {
  std::string key(in.get_string());
  if (!in.ok() || !in.at_end() || key.empty() || key.size() > store::largest_key) return false;
  Values& own = visitors_[connection];
  values_[key] = std::move(own[key]);
  own.erase(key);
  answer(connection, store::message(Verb::done, ticket));
  auto [first, last] = waiting_.equal_range(key);
  std::vector<Fetch> waiting;
  for (auto at = first; at != last; ++at) waiting.push_back(at->second);
  waiting_.erase(first, last);
  for (const Fetch& each : waiting)
    if (is_in(each.connection)) hand_out(key, each);
  return true;
}

bool StorePieces::fetch(std::uint64_t connection, std::uint32_t ticket, ByteReader& in) {
  std::string key(in.get_string());
  Fetch wanted{connection, ticket, in.get<std::uint64_t>(), in.get<std::uint8_t>() != 0};
  const bool waits = in.get<std::uint8_t>() != 0;
  wanted.size = in.get<std::uint64_t>();
  if (!in.ok() || !in.at_end() || key.empty() || key.size() > store::largest_key) return false;
  // A new request of a connection takes the place of one whose deadline has passed.
  std::erase_if(waiting_, [&](const auto& entry) { return entry.second.connection == connection; });
  if (values_.contains(key)) hand_out(key, wanted);
  else if (waits) waiting_.emplace(std::move(key), wanted);
  else answer_failed(connection, ticket, {ErrorCode::timeout, "the store has no value \"" + key + "\""});
  return true;
}

void StorePieces::hand_out(const std::string& key, const Fetch& fetch) {
  auto found = values_.find(key);
  if (found == values_.end()) {  // another visitor has taken it meanwhile
    waiting_.emplace(key, fetch);
    return;
  }
  Value& value = found->second;
  const bool looks = fetch.piece == no_piece;
  const std::uint64_t number = fetch.piece - value.forgotten;
  if (!looks && (fetch.piece < value.forgotten || (number >= value.pieces.size() && number > 0)))
    return answer_failed(
        fetch.connection, fetch.ticket,
        {ErrorCode::invalid_argument, "the store has no piece " + std::to_string(fetch.piece) + " of \"" + key +
                                          "\": it was taken by another, or replaced"});
  Buffer buffer = store::message(Verb::value, fetch.ticket);
  ByteWriter out(buffer);
  out.put(value.bytes);
  out.put(value.number);
  const store::SharedMessage piece = looks || value.pieces.empty() ? nullptr : value.pieces[number];
  if (fetch.forgets && number == 0 && fetch.size == value.bytes) {
    if (!value.pieces.empty()) value.pieces.pop_front();
    ++value.forgotten;
    if (value.pieces.empty()) values_.erase(found);
  }
  if (piece != nullptr) options_.answer(fetch.connection, piece);
  answer(fetch.connection, std::move(buffer));
}

}  // namespace hvd::bootstrap
