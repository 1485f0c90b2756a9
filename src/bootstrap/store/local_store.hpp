#pragma once
// A small key-value store for the ranks of one machine, served by the launcher if PMIx is absent. The server is polled
// by its owner's loop (it has no thread, so the owner may fork); the client is used by the `environment` bootstrap.
//
// Wire format, over a SOCK_SEQPACKET socket of the abstract unix namespace whose name the kernel chose (host byte
// order):
//  1. A message is one packet of at most largest_message bytes: a u8 verb, a u32 ticket, a body that ends with the
//     packet. Strings and values in a body are a u32 length and the bytes.
//  2. The server drops connections of another user (SO_PEERCRED) unread. The first message is the client's `hello` {u32
//     magic, u32 wire version, secret, i32 rank, i32 size, i32 pid}. The answer is `welcome` {job} or `failed`. A wrong
//     secret gets `stranger` and the end of the connection; anything else is dropped without an answer. A rank is in at
//     most once at a time. A client that is not in yet may be dropped (it said nothing for long), and tries again.
//  3. Then come any number of requests. Answers carry the ticket of their request, and may come in another order. `put`
//     {key, value} → `done`. `get` {i32 rank, key} → `value` {bytes}, as soon as the value was put. `fence` {} →
//     `done`, when every rank has called it as often as this one. `abort` {reason} and `leave` {} have no answer, but a
//     `leave` with a ticket is answered by `done`: that rank may come back.
//  4. `card` {key, i32 rank, card} brings the card (cards.hpp) of this rank, or of another one of its node, and has no
//     answer. `exchange` {key} follows with the same ticket, and is answered when the cards of all ranks are here: with
//     the table, in messages `piece` {bytes} whose ticket is the number of the exchange, the same for all, and then
//     with `all` {u32 that number}. `absent` {key} asks which ranks have not brought a card yet, or with an empty key
//     which have not come to the fence that the asking rank is at: `value` {one i32 for each}.
//  5. `failed` {u8 error code, text} answers a request that cannot be carried out. A connection that ends without
//     `leave` means that its rank is lost: every fence and exchange that lacks the rank fails, now and later, and so
//     does every get of a value that it had not put.
//  6. In a job whose ranks come and go (generations.hpp) `hello` has the number of the process in place of the rank,
//     and size 0. `assign` {u8 cause, i64 step, u8 keeps} asks for a place in the next generation, and leaves that of
//     the process. It is answered when there is a place: `assigned` {i32 rank, size, local rank, local size, cross
//     rank, cross size, u32 epoch, i32 newcomers}. The requests of 3 and 4 concern the generation of the last answer;
//     they fail once another one has begun. `news` {f64 time, u8 change} comes unasked, with ticket 0, to rank 0.
//  7. A message that does not parse, or is longer than allowed, ends the connection: its rank is lost.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "bootstrap/store/client.hpp"

namespace hvd::bootstrap {

namespace local_store {
// The launcher sets these for every rank, besides HOROVOD_RANK and HOROVOD_SIZE.
// the store's abstract socket name, such as "@00f3a"
inline constexpr const char* address_variable = "HOROVOD_LOCAL_STORE";
inline constexpr const char* secret_variable = "HOROVOD_LOCAL_STORE_SECRET";  // the job's secret, 32 hexadecimal digits
}  // namespace local_store

// Used by one thread. Its calls never block.
class LocalStoreServer {
 public:
  struct Options {
    std::string job;  // unique on this machine; the ranks get it as Identity::job
    int size = 1;
    // Called when a rank asks for the end of the job. The call comes from inside serve() or rank_ended().
    std::function<void(Rank, std::string_view reason)> on_abort{};
    // A new connection that says nothing for this time is dropped.
    std::chrono::milliseconds strangers_time = std::chrono::seconds(5);
  };
  static Result<std::unique_ptr<LocalStoreServer>> open(Options options);
  ~LocalStoreServer();

  // The variables by which ranks find the store, as pairs of name and value.
  const std::vector<std::pair<std::string, std::string>>& variables() const;
  // The descriptor is readable when serve() has something to do. The owner adds it to its poll(). It is close-on-exec.
  int descriptor() const;
  // Handles everything that can be handled now.
  void serve();
  // Called when the owner saw the process of a rank end. `how` is a text like "exited with code 3". Fences that wait
  // for the rank fail and name this reason. The call does no harm for a rank that has done its part.
  void rank_ended(Rank rank, std::string_view how);

 private:
  struct State;
  explicit LocalStoreServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

struct LocalStoreClient {
  static Result<std::unique_ptr<StoreClient>> join(std::string_view address, std::string_view secret, Rank rank,
                                                   int size, Deadline deadline);
};

}  // namespace hvd::bootstrap
