#pragma once
// Connects ranks that are threads of one process: has their shared memory and the mailboxes between them. Tests use it
// for all layers above, and can ask for delay, loss and death. Any thread may call any function.
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/channel.hpp"
#include "base/group.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "native/posix/memory/wait_word.hpp"

namespace hvd::connections {

class ThreadHub {
 public:
  explicit ThreadHub(int ranks);
  ~ThreadHub();
  ThreadHub(const ThreadHub&) = delete;
  ThreadHub& operator=(const ThreadHub&) = delete;

  int ranks() const noexcept { return static_cast<int>(desks_.size()); }
  // Returns the same memory to all callers that pass the same name. It is page-aligned and zeroed at the first call,
  // and lives as long as it has an owner. Fails if the size differs from that of the first caller.
  Result<std::shared_ptr<void>> share_memory(std::string_view name, std::size_t bytes);
  // Sets the wait word of a rank's engine. It is posted when a message for the rank arrives, when one of its messages
  // was taken, and at every death. Null removes the word. After the call the previous word is not touched.
  void set_wake(Rank rank, posix::WaitWord* wake);

  // Faults, for tests. Messages from `from` to `to` arrive only after this many polls by the receiver.
  void delay(Rank from, Rank to, int polls);
  // From now on every message arrives after a random number of polls from 0 to `longest_polls`, so messages overtake
  // each other.
  void delay_randomly(std::uint64_t seed, int longest_polls);
  // Loses the next messages. Their sender does not notice.
  void drop_next(Rank from, Rank to, int messages);
  // From now on no message comes from the rank or goes to it. All that share a link with it are told.
  void kill(Rank rank);
  bool is_dead(Rank rank) const noexcept;
  bool has_deaths() const noexcept { return deaths_.load(std::memory_order_acquire) != 0; }

  // ---- the post office, for links -------------------------------------------------------------------------------

  // A message under way. The sending link owns it and does not touch it until is_delivered() or withdraw().
  struct Letter {
    Seat from;
    Channel channel;
    ConstBytes bytes;
    int polls_left = 0;
    std::atomic<int> stage{
        0};  // 0: posted, 1: being copied by the receiver, 2: delivered; changes only under the mailbox's mutex
    bool is_delivered() const noexcept { return stage.load(std::memory_order_acquire) == 2; }
  };
  // The mailboxes of one link's group.
  struct Line {
    struct Mailbox {
      std::mutex mutex;
      std::condition_variable copied;
      std::vector<Letter*> letters;        // letters in the order in which they were posted
      std::atomic<bool> is_closed{false};  // the seat's link was aborted or destroyed
      std::string why_closed;              // written before is_closed is set, and constant afterwards
    };
    explicit Line(const Group& members) : ranks(members.ranks), mailboxes(members.ranks.size()) {}
    const std::vector<Rank> ranks;   // the rank of each seat
    std::vector<Mailbox> mailboxes;  // one mailbox for each seat
  };
  enum class Taken : std::uint8_t { not_here, delivered, wrong_size };

  // Returns the line of that name. The first call makes it. In the life of the hub a name is used for only one link.
  std::shared_ptr<Line> open_line(std::string_view name, const Group& group);
  void post(Line& line, Seat to, Letter& letter);
  // Copies the oldest matching letter. If the result is wrong_size, the letter is dropped, and `actual_bytes` is its
  // size.
  Taken take(Line& line, Seat me, Seat from, Channel channel, Bytes into, std::size_t& actual_bytes);
  // Takes the letter back: after the call no receiver reads its bytes. If one is copying them, the call waits for it.
  void withdraw(Line& line, Seat to, Letter& letter);
  // Called once, when the seat's link has ended. All seats that share the line are woken and get the reason.
  void close(Line& line, Seat me, std::string why);

 private:
  struct Desk {  // The state of one rank.
    std::mutex mutex;
    posix::WaitWord* wake = nullptr;
    std::atomic<bool> is_dead{false};
  };
  struct Faults {
    std::map<std::pair<Rank, Rank>, int> delays, drops;
    std::uint64_t random_state = 0;
    int longest_polls = 0;
  };
  struct Shared {
    std::weak_ptr<void> memory;
    std::size_t bytes = 0;
  };
  Desk& desk(Rank rank) { return *desks_.at(static_cast<std::size_t>(rank.value)); }
  void wake(Rank rank);
  // Returns how many polls the message must wait; nothing if the message is to be lost.
  std::optional<int> fate_of_message(Rank from, Rank to);

  std::vector<std::unique_ptr<Desk>> desks_;  // one desk for each rank
  std::atomic<int> deaths_{0};
  std::mutex mutex_;  // guards the maps and the faults
  std::map<std::string, Shared, std::less<>> memories_;
  std::map<std::string, std::shared_ptr<Line>, std::less<>> lines_;
  std::atomic<bool> has_faults_{false};
  Faults faults_;
};

}  // namespace hvd::connections
