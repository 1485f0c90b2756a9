#pragma once
// Ranks that are threads of one process (tests, and the test bed of everything above): the memory that they share and
// the mailboxes between them, with delay, loss and death on demand. Every function may be called from any thread.
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
#include "native/posix/wait_word.hpp"

namespace hvd::connections {

class ThreadHub {
 public:
  explicit ThreadHub(int ranks);
  ~ThreadHub();
  ThreadHub(const ThreadHub&) = delete;
  ThreadHub& operator=(const ThreadHub&) = delete;

  int ranks() const noexcept { return static_cast<int>(desks_.size()); }
  // The same memory for all callers of the same name, page-aligned; zeroed at the first call. Lives as long as somebody
  // holds it. Fails if the size differs from the first caller's.
  Result<std::shared_ptr<void>> share_memory(std::string_view name, std::size_t bytes);
  // The wait word of a rank's engine. It is posted when a message for the rank arrives, when one of its messages was
  // taken, and at every death. Null ends that: after the call nobody touches the former word.
  void set_wake(Rank rank, posix::WaitWord* wake);

  // Faults, for tests. Messages of `from` to `to` arrive only after so many polls by the receiver.
  void delay(Rank from, Rank to, int polls);
  // Every message from now on arrives after a number of polls drawn from 0…longest, so messages overtake each other.
  void delay_randomly(std::uint64_t seed, int longest_polls);
  // The next messages get lost; their sender does not notice.
  void drop_next(Rank from, Rank to, int messages);
  // From now on nothing comes from the rank or goes to it; all that share a link with it are told.
  void kill(Rank rank);
  bool is_dead(Rank rank) const noexcept;
  bool has_deaths() const noexcept { return deaths_.load(std::memory_order_acquire) != 0; }

  // ---- the post office, for links -------------------------------------------------------------------------------

  // A message under way. Owned by the sending link, which leaves it alone until is_delivered() or withdraw().
  struct Letter {
    Seat from;
    Channel channel;
    ConstBytes bytes;
    int polls_left = 0;
    std::atomic<int> stage{
        0};  // 0 posted, 1 being copied by the receiver, 2 delivered; changes under the mailbox's mutex
    bool is_delivered() const noexcept { return stage.load(std::memory_order_acquire) == 2; }
  };
  // The mailboxes of one link's group.
  struct Line {
    struct Mailbox {
      std::mutex mutex;
      std::condition_variable copied;
      std::vector<Letter*> letters;        // in the order in which they were posted
      std::atomic<bool> is_closed{false};  // the seat's link was aborted or destroyed
      std::string why_closed;              // set before is_closed, constant after it
    };
    explicit Line(const Group& members) : ranks(members.ranks), mailboxes(members.ranks.size()) {}
    const std::vector<Rank> ranks;   // by seat
    std::vector<Mailbox> mailboxes;  // by seat
  };
  enum class Taken : std::uint8_t { not_here, delivered, wrong_size };

  // The line of that name; the first call makes it. A name stands for one link in the life of the hub.
  std::shared_ptr<Line> open_line(std::string_view name, const Group& group);
  void post(Line& line, Seat to, Letter& letter);
  // Copies the oldest matching letter. After wrong_size the letter is dropped, and `actual_bytes` tells its size.
  Taken take(Line& line, Seat me, Seat from, Channel channel, Bytes into, std::size_t& actual_bytes);
  // After the call nobody reads the letter's bytes. It waits for a receiver that is copying them.
  void withdraw(Line& line, Seat to, Letter& letter);
  // The seat's link has ended; call it once. All that share the line are woken to notice it, and told why.
  void close(Line& line, Seat me, std::string why);

 private:
  struct Desk {  // one per rank
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
  // Polls to wait for; nothing if the message is to get lost.
  std::optional<int> fate_of_message(Rank from, Rank to);

  std::vector<std::unique_ptr<Desk>> desks_;  // by rank
  std::atomic<int> deaths_{0};
  std::mutex mutex_;  // guards the maps and the faults
  std::map<std::string, Shared, std::less<>> memories_;
  std::map<std::string, std::shared_ptr<Line>, std::less<>> lines_;
  std::atomic<bool> has_faults_{false};
  Faults faults_;
};

}  // namespace hvd::connections
