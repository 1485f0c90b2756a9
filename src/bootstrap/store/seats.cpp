#include "bootstrap/store/seats.hpp"

#include <algorithm>
#include <utility>

#include "bootstrap/store/verbs.hpp"

namespace hvd::bootstrap {
namespace {

using store::Verb;

constexpr std::size_t most_stored_bytes = 256u << 20;  // limit for the values of all ranks together
constexpr std::size_t longest_reason = 4096;

std::string clipped(std::string_view text) {
  return std::string(text.substr(0, longest_reason));
}

}  // namespace

StoreSeats::StoreSeats(Options options) : options_(std::move(options)) {
  seats_.resize(static_cast<std::size_t>(options_.size));
}

void StoreSeats::answer(std::uint64_t connection, Buffer message) {
  options_.answer(connection, std::make_shared<store::Message>(store::Message{std::move(message)}));
}

void StoreSeats::answer_done(std::uint64_t connection, std::uint32_t ticket) {
  answer(connection, store::message(Verb::done, ticket));
}

void StoreSeats::answer_failed(std::uint64_t connection, std::uint32_t ticket, ErrorCode code, std::string_view text) {
  Buffer buffer = store::message(Verb::failed, ticket);
  ByteWriter out(buffer);
  out.put(static_cast<std::uint8_t>(code));
  out.put_string(text);
  answer(connection, std::move(buffer));
}

void StoreSeats::answer_value(std::uint64_t connection, std::uint32_t ticket, ConstBytes value) {
  Buffer buffer = store::message(Verb::value, ticket);
  ByteWriter out(buffer);
  out.put(static_cast<std::uint32_t>(value.size()));
  out.put_raw(value.data(), value.size());
  answer(connection, std::move(buffer));
}

void StoreSeats::left(std::uint64_t connection, std::string_view why) {
  auto found = clients_.find(connection);
  if (found == clients_.end()) return;
  Client client = found->second;
  clients_.erase(found);
  Seated& seat = seat_of(client.rank);
  seat.connection.reset();
  seat.fence_ticket.reset();
  for (auto& [key, exchange] : exchanges_) exchange.about_to_ask.erase(connection);
  if (!client.has_left) lose(client.rank, why);
  settle_exchanges();
}

void StoreSeats::lose(Rank rank, std::string_view how) {
  Seated& seat = seat_of(rank);
  if (!seat.lost.empty()) return;
  seat.lost = how.empty() ? "ended" : clipped(how);
  ++lost_;
  auto waiting = std::move(seat.waiting);
  seat.waiting.clear();
  for (auto& [key, get] : waiting) answer_failed(get.connection, get.ticket, ErrorCode::peer_lost, missing(rank, key));
  settle_exchanges();
  settle_fence();
}

std::string StoreSeats::missing(Rank rank, std::string_view key) {
  return "rank " + std::to_string(rank.value) + " " + seat_of(rank).lost + " before it had put \"" + std::string(key) +
         "\"";
}

// Ends the current fence if all ranks have arrived. Fails the fence if a rank is lost that has not arrived.
void StoreSeats::settle_fence() {
  bool complete = arrived_ == options_.size;
  if (!complete && lost_ == 0) return;
  std::string lost;
  for (int rank = 0; rank < options_.size && lost.empty() && !complete; ++rank) {
    const Seated& each = seat_of(Rank{rank});
    if (each.fences <= fences_done_ && !each.lost.empty())
      lost = "rank " + std::to_string(rank) + " " + each.lost + " while the others waited for it at the start";
  }
  if (!complete && lost.empty()) return;
  if (complete) {
    ++fences_done_;
    arrived_ = 0;
  }
  // The waiting ranks are collected first, because an answer can end a connection.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> waiting;
  for (Seated& each : seats_)
    if (auto ticket = std::exchange(each.fence_ticket, std::nullopt); ticket && each.connection)
      waiting.emplace_back(*each.connection, *ticket);
  for (auto [connection, ticket] : waiting) {
    if (complete) answer_done(connection, ticket);
    else answer_failed(connection, ticket, ErrorCode::peer_lost, lost);
  }
}

bool StoreSeats::seat(std::uint64_t connection, std::uint32_t ticket, const StoreGuest& guest) {
  std::string refusal;
  ErrorCode code = ErrorCode::invalid_argument;
  std::string who = "rank " + std::to_string(guest.rank);
  if (guest.wire_version != store::wire_version) {
    code = ErrorCode::mismatch;
    refusal = "the launcher's local store speaks version " + std::to_string(store::wire_version) +
              ", this rank version " + std::to_string(guest.wire_version) +
              ": use one Horovod for horovodrun and the program";
  } else if (guest.size != options_.size || !is_rank(guest.rank)) {
    refusal = "the launcher started " + std::to_string(options_.size) + " ranks, but this process says that it is " +
              who + " of " + std::to_string(guest.size) + " (HOROVOD_RANK, HOROVOD_SIZE)";
  } else if (const Seated& taken = seat_of(Rank{guest.rank}); !taken.lost.empty()) {
    code = ErrorCode::peer_lost;
    refusal = who + " " + taken.lost + "; another process cannot take its place";
  } else if (taken.connection) {
    refusal = who + " is process " + std::to_string(clients_.at(*taken.connection).pid) + " already; process " +
              std::to_string(guest.pid) +
              " has inherited its HOROVOD_RANK: a child of a rank cannot take part by itself";
  }
  if (!refusal.empty()) {
    answer_failed(connection, ticket, code, refusal);
    return false;
  }
  take(connection, Rank{guest.rank}, guest.pid);
  Buffer buffer = store::message(Verb::welcome, ticket);
  ByteWriter(buffer).put_string(options_.job);
  answer(connection, std::move(buffer));
  return true;
}

void StoreSeats::take(std::uint64_t connection, Rank rank, std::int32_t pid) {
  clients_[connection] = Client{rank, pid};
  seat_of(rank).connection = connection;
}

bool StoreSeats::handle(std::uint64_t connection, ConstBytes message) {
  ByteReader in(message);
  auto verb = static_cast<Verb>(in.get<std::uint8_t>());
  auto ticket = in.get<std::uint32_t>();
  auto from = clients_.find(connection);
  if (!in.ok() || from == clients_.end()) return false;
  switch (verb) {
    case Verb::put: return put(connection, from->second.rank, ticket, in);
    case Verb::get: return get(connection, ticket, in);
    case Verb::card: return card(connection, ticket, in);
    case Verb::exchange: return exchange(connection, ticket, in);
    case Verb::absent: return absent(connection, from->second.rank, ticket, in);
    case Verb::fence: return in.at_end() && fence(from->second.rank, ticket);
    case Verb::abort: {
      std::string reason = clipped(in.get_string());
      if (!in.ok() || !in.at_end()) return false;
      if (options_.on_abort) options_.on_abort(from->second.rank, reason);
      return true;
    }
    case Verb::leave:
      if (!in.at_end()) return false;
      from->second.has_left = true;
      left(connection, "");  // the rank leaves at once, because it may come back before the end of its old connection
                             // is seen
      if (ticket != 0) answer_done(connection, ticket);
      return true;
    case Verb::hello:
    case Verb::welcome:
    case Verb::done:
    case Verb::value:
    case Verb::failed:
    case Verb::stranger:
    case Verb::piece:
    case Verb::all:
    case Verb::publish:
    case Verb::fetch:
    case Verb::ended:
    case Verb::assign:
    case Verb::assigned:
    case Verb::news: break;  // no request to this part of the store
  }
  return false;
}

bool StoreSeats::put(std::uint64_t connection, Rank rank, std::uint32_t ticket, ByteReader& in) {
  std::string key(in.get_string());
  ConstBytes value = as_bytes(in.get_string());
  if (!in.ok() || !in.at_end() || key.empty() || key.size() > store::largest_key) return false;
  if (value.size() > store::largest_value) return false;
  Seated& mine = seat_of(rank);
  if (mine.values.contains(key)) {
    answer_failed(connection, ticket, ErrorCode::invalid_argument,
                  "\"" + key + "\" was put already; a key is used once");
    return true;
  }
  if (stored_bytes_ + key.size() + value.size() > most_stored_bytes) {
    answer_failed(connection, ticket, ErrorCode::out_of_memory,
                  "the local store holds " + std::to_string(stored_bytes_) + " bytes and takes at most " +
                      std::to_string(most_stored_bytes));
    return true;
  }
  stored_bytes_ += key.size() + value.size();
  mine.values.emplace(key, Buffer(value.begin(), value.end()));
  answer_done(connection, ticket);
  auto [first, last] = mine.waiting.equal_range(key);
  std::vector<WaitingGet> waiting;
  for (auto at = first; at != last; ++at) waiting.push_back(at->second);
  mine.waiting.erase(first, last);
  for (const WaitingGet& get : waiting) answer_value(get.connection, get.ticket, value);
  return true;
}

bool StoreSeats::get(std::uint64_t connection, std::uint32_t ticket, ByteReader& in) {
  auto rank = in.get<std::int32_t>();
  std::string key(in.get_string());
  if (!in.ok() || !in.at_end() || !is_rank(rank) || key.empty() || key.size() > store::largest_key) return false;
  Seated& theirs = seat_of(Rank{rank});
  if (auto found = theirs.values.find(key); found != theirs.values.end())
    answer_value(connection, ticket, found->second);
  else if (!theirs.lost.empty()) answer_failed(connection, ticket, ErrorCode::peer_lost, missing(Rank{rank}, key));
  else theirs.waiting.emplace(std::move(key), WaitingGet{connection, ticket});
  return true;
}

bool StoreSeats::fence(Rank rank, std::uint32_t ticket) {
  Seated& mine = seat_of(rank);
  if (mine.fence_ticket) return false;  // a client makes one request at a time
  // A rank that comes again to a fence that has failed was counted already.
  if (mine.fences++ == fences_done_) ++arrived_;
  mine.fence_ticket = ticket;
  settle_fence();
  return true;
}

bool StoreSeats::card(std::uint64_t connection, std::uint32_t ticket, ByteReader& in) {
  std::string key(in.get_string());
  auto rank = in.get<std::int32_t>();
  ConstBytes card = as_bytes(in.get_string());
  if (!in.ok() || !in.at_end() || !is_rank(rank) || key.empty() || key.size() > store::largest_key) return false;
  if (card.size() > store::largest_value) return false;
  auto [found, is_new] = exchanges_.try_emplace(key, options_.size);
  Exchange& exchange = found->second;
  if (is_new) exchange.number = ++exchanges_begun_;
  if (auto place = static_cast<std::size_t>(rank); !exchange.has[place]) {
    exchange.table.add(Rank{rank}, decode_card(card));
    exchange.has[place] = true;
    ++exchange.arrived;
    exchange.about_to_ask.insert(connection);
  } else {
    answer_failed(
        connection, ticket, ErrorCode::invalid_argument,
        "the card \"" + key + "\" of rank " + std::to_string(rank) + " was brought already; a key is used once");
  }
  return true;
}

bool StoreSeats::exchange(std::uint64_t connection, std::uint32_t ticket, ByteReader& in) {
  std::string key(in.get_string());
  if (!in.ok() || !in.at_end()) return false;
  auto found = exchanges_.find(key);
  if (found == exchanges_.end() || found->second.about_to_ask.erase(connection) == 0) {
    // Either the card was refused, and the rank was told so; or the whole exchange was ended when a rank was lost.
    std::string lost = lost_among(std::vector<bool>(seats_.size(), false));
    answer_failed(connection, ticket, ErrorCode::peer_lost, lost.empty() ? "it has brought no card" : lost);
    return true;
  }
  found->second.waiting.emplace_back(connection, ticket);
  settle_exchanges();
  return true;
}

// All finished exchanges are taken out before anybody is answered: an answer can end a connection, and that end can
// settle other exchanges.
void StoreSeats::settle_exchanges() {
  using Taken = decltype(exchanges_)::node_type;
  std::vector<Taken> complete;
  std::vector<std::pair<Taken, std::string>> failed;
  for (auto next = exchanges_.begin(); next != exchanges_.end();) {
    auto at = next++;
    const Exchange& exchange = at->second;
    if (exchange.arrived == options_.size && exchange.about_to_ask.empty()) complete.push_back(exchanges_.extract(at));
    else if (auto lost = lost_among(exchange.has); !lost.empty()) failed.emplace_back(exchanges_.extract(at), lost);
  }
  for (Taken& exchange : complete) hand_out(exchange.mapped());
  for (auto& [exchange, lost] : failed)
    for (auto [connection, ticket] : exchange.mapped().waiting)
      answer_failed(connection, ticket, ErrorCode::peer_lost, lost);
}

void StoreSeats::hand_out(Exchange& exchange) {
  Buffer table = exchange.table.encode();
  std::vector<store::SharedMessage> pieces;
  for (std::size_t at = 0; at < table.size(); at += store::piece_bytes) {
    Buffer piece = store::message(Verb::piece, exchange.number);
    ByteWriter(piece).put_raw(table.data() + at, std::min(store::piece_bytes, table.size() - at));
    pieces.push_back(std::make_shared<store::Message>(store::Message{std::move(piece)}));
  }
  for (auto [connection, ticket] : exchange.waiting) {
    for (const store::SharedMessage& piece : pieces) options_.answer(connection, piece);
    Buffer all = store::message(Verb::all, ticket);
    ByteWriter(all).put(exchange.number);
    answer(connection, std::move(all));
  }
}

// Describes the first lost rank that has not come; empty if there is none.
std::string StoreSeats::lost_among(const std::vector<bool>& has_come) const {
  for (std::size_t rank = 0; rank < has_come.size() && lost_ > 0; ++rank)
    if (!has_come[rank] && !seats_[rank].lost.empty())
      return "rank " + std::to_string(rank) + " " + seats_[rank].lost + " while the others waited for it at the start";
  return "";
}

bool StoreSeats::absent(std::uint64_t connection, Rank rank, std::uint32_t ticket, ByteReader& in) {
  std::string key(in.get_string());
  if (!in.ok() || !in.at_end()) return false;
  auto exchange = exchanges_.find(key);
  std::uint64_t fences = seat_of(rank).fences;
  Buffer missing;
  for (std::size_t other = 0; other < seats_.size(); ++other) {
    bool is_there =
        key.empty() ? seats_[other].fences >= fences : exchange == exchanges_.end() || exchange->second.has[other];
    if (!is_there && missing.size() < store::piece_bytes) ByteWriter(missing).put(static_cast<std::int32_t>(other));
  }
  answer_value(connection, ticket, missing);
  return true;
}

}  // namespace hvd::bootstrap
