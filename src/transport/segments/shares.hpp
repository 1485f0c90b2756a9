#pragma once
// Which elements belong to each seat: of the output of an allgather, or of the input of a reduce_scatter.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/panic.hpp"
#include "base/task.hpp"
#include "base/verb.hpp"
#include "transport/transport.hpp"

namespace hvd::transport {

// True if every seat has a share of the elements.
constexpr bool has_shares(Verb verb) noexcept {
  return verb == Verb::allgather || verb == Verb::reduce_scatter;
}

// The object keeps its memory between batches.
class Shares {
 public:
  Shares(Verb verb, int seats) : verb_(verb), begins_(static_cast<std::size_t>(seats) + 1, 0) {}

  // Has the meaning of Task::resize(). Of other verbs than allgather and reduce_scatter the numbers are ignored.
  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) {
    if (!has_shares(verb_)) return;
    const std::span<const std::int64_t> counts = verb_ == Verb::allgather ? received : sent;
    is_even_ = counts.empty();
    if (is_even_) return;
    even_total_ = -1;
    if (counts.size() + 1 != begins_.size())
      panic(std::string(name_of(verb_)) + ": expected a number of elements for each of " + std::to_string(seats()) +
            " seats, found " + std::to_string(counts.size()));
    for (std::size_t seat = 0; seat < counts.size(); ++seat) begins_[seat + 1] = begins_[seat] + counts[seat];
    largest_ = *std::ranges::max_element(counts);
  }
  // Prepares for the next batch, which has `total` elements.
  void deal(std::int64_t total) {
    if (is_even_ && even_total_ != total) divide_evenly(total);
    if (begins_.back() != total)
      panic(std::string(name_of(verb_)) + ": expected a batch of " + std::to_string(begins_.back()) +
            " elements, as resize() was told; found " + std::to_string(total));
  }

  int seats() const { return static_cast<int>(begins_.size()) - 1; }
  std::int64_t begin(int seat) const { return begins_[static_cast<std::size_t>(seat)]; }
  std::int64_t count(int seat) const { return begin(seat + 1) - begin(seat); }
  std::int64_t largest() const { return largest_; }

 private:
  void divide_evenly(std::int64_t total) {
    even_total_ = total;
    for (int seat = 0; seat < seats(); ++seat)
      begins_[static_cast<std::size_t>(seat) + 1] = share_of(total, Seat{seat}, seats()).end;
    largest_ = count(0);  // the first seats get one more than the others
  }

  const Verb verb_;
  bool is_even_ = true;
  std::int64_t even_total_ = 0;       // the total that was divided evenly; -1: the shares are not even
  std::vector<std::int64_t> begins_;  // where each seat's share begins; the last entry is the end
  std::int64_t largest_ = 0;
};

}  // namespace hvd::transport
