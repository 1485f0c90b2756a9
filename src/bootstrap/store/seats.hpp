#pragma once
// What a store of a job knows: which ranks are in, what they have put, which of them wait and for what. It has no
// sockets. Its owner hands it the messages of clients, with the number of the client's connection, and sends its
// answers. local_store.hpp describes the messages.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "bootstrap/meeting/cards.hpp"
#include "bootstrap/store/verbs.hpp"

namespace hvd::bootstrap {

// The facts about itself that a client sends when it has connected.
struct StoreGuest {
  std::uint32_t wire_version = 0;
  std::int32_t rank = -1;
  std::int32_t size = 0;
  std::int32_t pid = 0;
};

class StoreSeats {
 public:
  struct Options {
    std::string job;
    int size = 1;
    std::function<void(Rank, std::string_view reason)> on_abort;
    // Sends a message to a connection. The call may end the connection, and reports this end by left().
    std::function<void(std::uint64_t connection, store::SharedMessage message)> answer;
  };
  explicit StoreSeats(Options options);

  // Called when a client has proven that it belongs to the job. Answers `welcome` or `failed`. True if the client has
  // a seat.
  bool seat(std::uint64_t connection, std::uint32_t ticket, const StoreGuest& guest);
  // Gives a free seat to a client, and answers nothing.
  void take(std::uint64_t connection, Rank rank, std::int32_t pid);
  bool is_seated(std::uint64_t connection) const { return clients_.contains(connection); }
  bool is_empty() const { return clients_.empty(); }
  // Handles a message of a client that has a seat. False if the message breaks the protocol.
  bool handle(std::uint64_t connection, ConstBytes message);
  // Called when a connection has ended. `why` completes "rank 3 …". The end does not count for a rank that has left.
  void left(std::uint64_t connection, std::string_view why);
  // Called when the process of a rank has ended.
  void lose(Rank rank, std::string_view how);

  bool is_rank(std::int32_t number) const { return number >= 0 && number < options_.size; }

 private:
  struct Client {
    Rank rank;
    std::int32_t pid = 0;
    bool has_left = false;
  };
  struct WaitingGet {
    std::uint64_t connection = 0;
    std::uint32_t ticket = 0;
  };
  struct Seated {
    std::optional<std::uint64_t> connection;
    std::uint64_t fences = 0;  // number of fences that the rank has entered so far
    std::optional<std::uint32_t> fence_ticket;
    std::string lost;  // how the rank ended; empty while it lives
    std::map<std::string, Buffer, std::less<>> values;
    std::multimap<std::string, WaitingGet, std::less<>> waiting;
  };

  // What all ranks bring under one key. It is kept until the table is handed out.
  struct Exchange {
    explicit Exchange(int ranks) : table(ranks), has(static_cast<std::size_t>(ranks), false) {}
    std::uint32_t number = 0;
    CardTable table;
    std::vector<bool> has;
    int arrived = 0;
    std::set<std::uint64_t> about_to_ask;  // connections that have brought cards but have not asked for the table yet
    std::vector<std::pair<std::uint64_t, std::uint32_t>> waiting;  // wait for the table: connection, ticket
  };

  Seated& seat_of(Rank rank) { return seats_[static_cast<std::size_t>(rank.value)]; }
  void answer_done(std::uint64_t connection, std::uint32_t ticket);
  void answer_failed(std::uint64_t connection, std::uint32_t ticket, ErrorCode code, std::string_view text);
  void answer_value(std::uint64_t connection, std::uint32_t ticket, ConstBytes value);
  std::string missing(Rank rank, std::string_view key);
  void settle_fence();
  bool put(std::uint64_t connection, Rank rank, std::uint32_t ticket, ByteReader& in);
  bool get(std::uint64_t connection, std::uint32_t ticket, ByteReader& in);
  bool fence(Rank rank, std::uint32_t ticket);
  bool card(std::uint64_t connection, std::uint32_t ticket, ByteReader& in);
  bool exchange(std::uint64_t connection, std::uint32_t ticket, ByteReader& in);
  bool absent(std::uint64_t connection, Rank rank, std::uint32_t ticket, ByteReader& in);
  void answer(std::uint64_t connection, Buffer message);
  void hand_out(Exchange& exchange);
  void settle_exchanges();
  std::string lost_among(const std::vector<bool>& has_come) const;

  Options options_;
  std::map<std::uint64_t, Client> clients_;
  std::vector<Seated> seats_;
  std::uint64_t fences_done_ = 0;
  std::map<std::string, Exchange, std::less<>> exchanges_;
  std::uint32_t exchanges_begun_ = 0;
  int arrived_ = 0;  // ranks that have arrived at the current fence
  int lost_ = 0;
  std::size_t stored_bytes_ = 0;
};

}  // namespace hvd::bootstrap
