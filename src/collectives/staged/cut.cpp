#include "collectives/staged/cut.hpp"

#include <algorithm>

#include "base/panic.hpp"

namespace hvd::collectives::staged {

namespace {

std::int64_t count_of(std::span<const Segment> segments) {
  std::int64_t count = 0;
  for (const Segment& segment : segments) count += segment.view.count;
  return count;
}

std::int64_t part_of_seat(const Collective& collective, const Group& group, std::int64_t elements) {
  return std::max<std::int64_t>(1, row_of(collective.verb).has_rows() ? elements / group.size() : elements);
}

}  // namespace

Cut::Cut(const Collective& collective, const Group& group, std::int64_t elements)
    : verb_(collective.verb),
      root_(collective.root),
      me_(group.me),
      size_(group.size()),
      elements_(part_of_seat(collective, group, elements)),
      shares_(collective.verb, group.size()),
      splits_(group.size()) {}

void Cut::resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) {
  if (verb_ == Verb::alltoall) splits_.resize(sent, received);
  else shares_.resize(sent, received);
}

void Cut::restart(std::span<const Segment> in, std::span<const Segment> out) {
  const std::int64_t total_in = count_of(in);
  total_out_ = count_of(out);
  auto chunks_of = [this](std::int64_t count) { return (count + elements_ - 1) / elements_; };
  switch (verb_) {
    case Verb::allgather:
    case Verb::reduce_scatter:
      shares_.deal(verb_ == Verb::allgather ? total_out_ : total_in);
      chunks_ = chunks_of(shares_.largest());
      return;
    case Verb::adasum: return cut_tensors(in);
    case Verb::alltoall:
      chunks_ = 0;
      for (int seat = 0; seat < size_; ++seat)
        chunks_ = std::max({chunks_, chunks_of(splits_.sent(seat)), chunks_of(splits_.received(seat))});
      return;
    case Verb::allreduce:
    case Verb::broadcast:
      total_ = verb_ == Verb::broadcast && me_ != root_ ? total_out_ : total_in;
      chunks_ = chunks_of(total_);
      return;
    case Verb::barrier:
    case Verb::join:
    case Verb::add_set:
    case Verb::remove_set: break;
  }
  panic("a verb is to be staged that is not cut here");
}

void Cut::cut_tensors(std::span<const Segment> tensors) {
  begins_.assign(1, 0);
  firsts_.clear();
  std::int64_t begin = 0;  // where the present chunk begins
  for (const Segment& tensor : tensors) {
    if (tensor.view.count == 0) continue;
    const std::int64_t end = begins_.back() + tensor.view.count;
    if (firsts_.empty() || end - begin > elements_) {
      firsts_.push_back(begins_.size() - 1);
      begin = begins_.back();
    }
    begins_.push_back(end);
  }
  chunks_ = static_cast<std::int64_t>(firsts_.size());
  firsts_.push_back(begins_.size() - 1);
}

Range Cut::piece(std::int64_t index, std::int64_t begin, std::int64_t count) const {
  const std::int64_t first = std::min(index * elements_, count);
  return {begin + first, std::min(elements_, count - first)};
}

void Cut::describe(std::int64_t index, Chunk& chunk) const {
  chunk.in.clear();
  chunk.out.clear();
  chunk.counts.clear();
  chunk.sent.clear();
  chunk.received.clear();
  switch (verb_) {
    case Verb::allgather:
    case Verb::reduce_scatter: {
      // On one side are the shares of all seats. On the other side is only this seat's own share, which begins at zero.
      const bool gathers = verb_ == Verb::allgather;
      for (int seat = 0; seat < size_; ++seat) {
        const std::int64_t begin = shares_.begin(seat);
        const Range range = piece(index, begin, shares_.count(seat));
        (gathers ? chunk.out : chunk.in).push_back(range);
        if (Seat{seat} == me_) (gathers ? chunk.in : chunk.out).push_back({range.begin - begin, range.count});
        chunk.counts.push_back(range.count);
      }
      return;
    }
    case Verb::alltoall:
      for (int seat = 0; seat < size_; ++seat) {
        chunk.in.push_back(piece(index, splits_.sent_begin(seat), splits_.sent(seat)));
        chunk.out.push_back(piece(index, splits_.received_begin(seat), splits_.received(seat)));
        chunk.sent.push_back(chunk.in.back().count);
        chunk.received.push_back(chunk.out.back().count);
      }
      return;
    case Verb::adasum:
      for (std::size_t tensor = firsts_[static_cast<std::size_t>(index)];
           tensor < firsts_[static_cast<std::size_t>(index) + 1]; ++tensor)
        chunk.in.push_back({begins_[tensor], begins_[tensor + 1] - begins_[tensor]});
      chunk.out = chunk.in;
      return;
    case Verb::allreduce:
    case Verb::broadcast: {
      const Range range = piece(index, 0, total_);
      if (verb_ != Verb::broadcast || me_ == root_) chunk.in.push_back(range);
      if (total_out_ > 0) chunk.out.push_back(range);
      return;
    }
    case Verb::barrier:
    case Verb::join:
    case Verb::add_set:
    case Verb::remove_set: break;  // restart() has refused them
  }
}

}  // namespace hvd::collectives::staged
