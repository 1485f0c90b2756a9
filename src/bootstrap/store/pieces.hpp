#pragma once
// What visitors of a store have put: processes that know the job's secret but are no ranks, such as the program that
// called horovod.run and the processes that run its function. They have no seats, so they may come and go. Values have
// any size and travel in pieces. Like StoreSeats this has no sockets.
//
//  1. A visitor's `hello` has the rank -1. The answer is `welcome`.
//  2. `put` {key, u64 at, piece} adds a piece to what this connection is about to put under the key → `done`. `at` is
//     the number of bytes before the piece; 0 begins anew. `publish` {key} puts it → `done`; it replaces an earlier
//     value. What was not published when a connection ends is dropped.
//  3. `fetch` {key, u64 piece, u8 forgets, u8 waits, u64 size} → `value` {u64 bytes of the whole value, u32 number of
//     the value}. Before it comes `piece` {the bytes} with that number as its ticket, the same message for all who ask,
//     unless there are no bytes or the piece wanted is `no_piece`. If there is no value, the answer comes as soon as
//     there is one, or at once if the visitor does not wait. With `forgets` the store drops the piece, and after the
//     last one the value, unless the value has another size.
//  4. `ended` {i32 rank, how}: the visitor has seen the process of a rank end → `done`.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "bootstrap/store/verbs.hpp"

namespace hvd::bootstrap {

class StorePieces {
 public:
  static constexpr std::int32_t visitors_rank = -1;
  static constexpr std::uint64_t no_piece = ~std::uint64_t{0};

  struct Options {
    std::string job;
    // Sends a message to a connection. The call may end the connection, and reports this end by left().
    std::function<void(std::uint64_t connection, store::SharedMessage message)> answer;
    std::function<Status(Rank, std::string_view how)> rank_ended;
  };
  explicit StorePieces(Options options) : options_(std::move(options)) {}

  void admit(std::uint64_t connection, std::uint32_t ticket);
  bool is_in(std::uint64_t connection) const { return visitors_.contains(connection); }
  bool is_empty() const { return visitors_.empty(); }
  // Handles a message of a visitor. False if the message breaks the protocol.
  bool handle(std::uint64_t connection, ConstBytes message);
  void left(std::uint64_t connection);

 private:
  struct Value {
    std::uint32_t number = 0;
    std::deque<store::SharedMessage> pieces;
    std::uint64_t bytes = 0;
    std::uint64_t forgotten = 0;  // number of pieces at the front that were dropped
  };
  using Values = std::map<std::string, Value, std::less<>>;
  struct Fetch {
    std::uint64_t connection = 0;
    std::uint32_t ticket = 0;
    std::uint64_t piece = 0;
    bool forgets = false;
    std::uint64_t size = 0;  // of the value that may be forgotten
  };

  void answer(std::uint64_t connection, Buffer message);
  void answer_failed(std::uint64_t connection, std::uint32_t ticket, const Error& error);
  bool put(std::uint64_t connection, std::uint32_t ticket, ByteReader& in);
  bool publish(std::uint64_t connection, std::uint32_t ticket, ByteReader& in);
  bool fetch(std::uint64_t connection, std::uint32_t ticket, ByteReader& in);
  void hand_out(const std::string& key, const Fetch& fetch);

  Options options_;
  std::map<std::uint64_t, Values> visitors_;  // what each connection is about to publish
  Values values_;
  std::uint32_t values_begun_ = 0;
  std::multimap<std::string, Fetch, std::less<>> waiting_;
};

}  // namespace hvd::bootstrap
