#pragma once
// The numbers of an alltoall: how many elements go to each seat and come from each seat, and where they are in the
// input and the output.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/panic.hpp"
#include "base/task.hpp"

namespace hvd::transport {

// The object keeps its memory between batches.
class Splits {
 public:
  explicit Splits(int seats) {
    sent_begins_.assign(static_cast<std::size_t>(seats) + 1, 0);
    received_begins_ = sent_begins_;
  }

  // Has the meaning of Task::resize().
  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) {
    add_up(sent, sent_begins_);
    add_up(received, received_begins_);
  }
  // Checks the lengths of the arrays that restart() got on seat `me`.
  void check(std::int64_t in, std::int64_t out, int me) const {
    if (sent(me) != received(me))
      panic("alltoall: seat " + std::to_string(me) + " sends itself " + std::to_string(sent(me)) +
            " elements, but receives " + std::to_string(received(me)));
    if (in == sent_begins_.back() && out == received_begins_.back()) return;
    panic("alltoall: expected " + std::to_string(sent_begins_.back()) + " elements of input and " +
          std::to_string(received_begins_.back()) + " of output, as resize() was told; found " + std::to_string(in) +
          " and " + std::to_string(out));
  }

  // The range of the input that goes to a seat.
  std::int64_t sent_begin(int seat) const { return sent_begins_[static_cast<std::size_t>(seat)]; }
  std::int64_t sent(int seat) const { return sent_begin(seat + 1) - sent_begin(seat); }
  // The range of the output that comes from a seat.
  std::int64_t received_begin(int seat) const { return received_begins_[static_cast<std::size_t>(seat)]; }
  std::int64_t received(int seat) const { return received_begin(seat + 1) - received_begin(seat); }

 private:
  static void add_up(std::span<const std::int64_t> counts, std::vector<std::int64_t>& begins) {
    if (counts.size() + 1 != begins.size())
      panic("alltoall: expected a number of elements for each of " + std::to_string(begins.size() - 1) +
            " seats, found " + std::to_string(counts.size()));
    for (std::size_t seat = 0; seat < counts.size(); ++seat) begins[seat + 1] = begins[seat] + counts[seat];
  }

  // For each seat, where its elements begin. The last entry is the end of all elements.
  std::vector<std::int64_t> sent_begins_, received_begins_;
};

}  // namespace hvd::transport
