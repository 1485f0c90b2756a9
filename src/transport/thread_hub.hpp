#pragma once
// Ranks that are threads of one process (tests, and the test bed of everything above): the memory that they share and
// the mailboxes between them, with delay, loss and death on demand.
#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>

#include "base/ids.hpp"

namespace hvd::posix {
class WaitWord;
}

namespace hvd::transport {

class ThreadHub {
 public:
  explicit ThreadHub(int ranks);
  ~ThreadHub();

  int ranks() const;
  // The same memory for all callers of the same name; zeroed at the first call. Lives as long as someone holds it.
  std::shared_ptr<void> share_memory(std::string_view name, std::size_t bytes);
  // The engine of a rank; posted when a message for it arrives.
  void set_wake(Rank rank, posix::WaitWord* wake);

  // Faults, for tests. Messages of `from` to `to` arrive only after so many polls by the receiver; get lost; never again.
  void delay(Rank from, Rank to, int polls);
  void drop_next(Rank from, Rank to, int messages);
  void kill(Rank rank);
  bool is_dead(Rank rank) const;

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace hvd::transport
