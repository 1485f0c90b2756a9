#pragma once
// A rank's connection to a store (seats.hpp), over any channel that carries the store's messages.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/deadline.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/meeting/cards.hpp"
#include "bootstrap/meeting/node_circle.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/sockets/unix_socket.hpp"

namespace hvd::bootstrap {

// A connection to a store. It carries whole messages, and its calls never block.
struct StoreChannel {
  std::string store;  // name of the store for error texts: "the launcher's local store"
  int descriptor = -1;
  std::function<Result<posix::Delivery>(ConstBytes message)> send;
  // receives a message; also sends bytes that send() has not sent
  std::function<Result<posix::Delivery>(Buffer& message)> receive;
  std::function<bool()> has_unsent;  // null if send() always sends all bytes
};

// Used by one thread at a time. Every call returns by its deadline. The destructor leaves the store.
class StoreClient {
 public:
  // Makes one try to connect. Returns nullopt if the store has no room now.
  using Connect = std::function<Result<std::optional<StoreChannel>>()>;
  // `greeting` is the body of the first message. If the store refuses the secret, the error names the variable
  // `secret`. If the store closes the connection before it has answered, the client tries again until the deadline.
  static Result<std::unique_ptr<StoreClient>> enter(const Connect& connect, ConstBytes greeting,
                                                    const std::string& secret, Rank rank, int size, Deadline deadline);
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  const std::string& job() const { return job_; }
  Status put(std::string_view key, ConstBytes value, Deadline deadline);
  // Returns the value as soon as rank `from` has put it.
  Result<Buffer> get(Rank from, std::string_view key, Deadline deadline);
  Status fence(Deadline deadline);
  // Collective: each rank brings a card and gets the cards of all. The error names the ranks that are late.
  Result<Cards> exchange(std::string_view key, const Card& card, Deadline deadline);
  // Does the exchange for several ranks, among them this one. Returns the encoded table.
  Result<Buffer> exchange(std::string_view key, const std::vector<BroughtCard>& cards, Deadline deadline);
  // Makes another request of the protocol, of this verb and body. `what` says in errors what it is for. Returns the
  // body of the answer.
  Result<Buffer> request(store::Verb verb, ConstBytes body, Deadline deadline, std::string_view what);
  // Makes `count` requests of a verb, many of which are under way at a time. `write` appends the body of one. `take`
  // gets the bodies of the answers in the order of the requests. Fails if the next answer does not come in time.
  Status request_all(store::Verb verb, std::uint64_t count,
                     const std::function<void(std::uint64_t number, ByteWriter& body)>& write,
                     const std::function<Status(ConstBytes answer)>& take, std::chrono::milliseconds time_for_each,
                     std::string_view what);
  // Returns the bytes of the messages `piece` that have come with this number.
  Buffer take_pieces(std::uint32_t number);
  void abort(std::string_view reason) noexcept;
  // For ranks that come and go (generations.hpp): waits for a place in the next generation, and enters it. The other
  // calls concern that generation then.
  Result<Identity> assign(const Progress& progress, Deadline deadline);
  // Returns the news about hosts that have come since the last assign(). Does not wait.
  std::vector<HostNews> take_news();
  bool is_broken() const { return !broken_.empty(); }
  // Leaves the store, and returns when the store knows: this rank may enter again then. Nothing can be asked
  // afterwards.
  Status leave(Deadline deadline);

 private:
  struct Reply {
    std::uint8_t verb = 0;
    Buffer body;
  };
  StoreClient(StoreChannel channel, Rank rank, int size);
  Status greet(ConstBytes greeting, const std::string& secret, Deadline deadline);
  Result<Reply> ask(std::uint8_t verb, ConstBytes body, Deadline deadline, std::string_view what);
  Result<Reply> answer(std::uint32_t ticket, Deadline deadline, std::string_view what);
  Status send(ConstBytes message, Deadline deadline, std::string_view what);
  Result<Buffer> receive(Deadline deadline, std::string_view what);
  void note_news(ConstBytes message);
  Error gone(std::string_view what);
  Error late(std::string_view what) const;
  void name_absent(Error& error, std::string_view key);

  StoreChannel channel_;
  Rank rank_;
  int size_;
  std::string job_;
  std::string broken_;      // why nothing can be asked any more
  std::string late_fence_;  // the reason why no fence can succeed any more; empty if it can
  std::uint32_t ticket_ = 0;
  std::vector<HostNews> news_;
  std::map<std::uint32_t, Buffer> pieces_;  // what has come of tables and values, by their number
};

}  // namespace hvd::bootstrap
