#pragma once
// What this rank still has to say to the leader: the requests for which its ring on the board has had no room yet.
#include <list>

#include "control/node_board.hpp"
#include "runtime/agreement/schedule.hpp"
#include "runtime/operations/counters.hpp"

namespace hvd::runtime {

// Only the engine's thread uses it.
class Outbox {
 public:
  Outbox(control::NodeBoard& board, Counters& counters) : board_(board), counters_(counters) {}

  // Requests leave in the order in which they were sent.
  void send(const Request& request) {
    encode(request, scratch_);
    counters_.requests_sent.add();
    if (!unsent_.empty() || !board_.send_request(scratch_)) unsent_.push_back(scratch_);
  }
  // Sends the requests that wait, as long as there is room. Returns true if it has sent at least one.
  bool send_waiting() {
    bool news = false;
    while (!unsent_.empty() && board_.send_request(unsent_.front())) {
      unsent_.pop_front();
      news = true;
    }
    return news;
  }
  // True if requests wait for room in the ring. Nothing announces that there is room again.
  bool has_waiting() const { return !unsent_.empty(); }

 private:
  control::NodeBoard& board_;
  Counters& counters_;
  std::list<Buffer> unsent_;
  Buffer scratch_;
};

}  // namespace hvd::runtime
