#include "collectives/hierarchical/node_shares.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace hvd::collectives::hierarchical {

namespace {

// Limits on the bytes of one node that a rail carries at a time. A rail's memory holds such bytes for all nodes, so
// with many nodes the size is smaller.
constexpr std::int64_t most_bytes = 256 << 10, least_bytes = 32 << 10, most_bytes_of_all = 2 << 20;

std::int64_t node_chunk_elements(const Team& team, DataType dtype) {
  std::int64_t bytes = std::clamp(most_bytes_of_all / team.nodes, least_bytes, most_bytes);
  return bytes / static_cast<std::int64_t>(size_of(dtype)) * team.rails;
}

}  // namespace

NodeShares::NodeShares(const Team& team, const Collective& collective)
    : rails_(team.rails),
      node_chunk_elements_(node_chunk_elements(team, collective.dtype)),
      my_node_(team.node_of[static_cast<std::size_t>(team.group.me.value)]),
      first_members_(static_cast<std::size_t>(team.nodes) + 1, 0),
      shares_(collective.verb, team.size()),
      pieces_(static_cast<std::size_t>(team.size()), 0) {
  for (int seat = 0; seat < team.size(); ++seat) members_.emplace_back(seat);
  auto node_of = [&](Seat seat) { return team.node_of[static_cast<std::size_t>(seat.value)]; };
  std::sort(members_.begin(), members_.end(), [&](Seat a, Seat b) {
    return std::pair(node_of(a), team.group.rank_at(a)) < std::pair(node_of(b), team.group.rank_at(b));
  });
  for (Seat seat : members_) ++first_members_[static_cast<std::size_t>(node_of(seat)) + 1];
  std::partial_sum(first_members_.begin(), first_members_.end(), first_members_.begin());
}

void NodeShares::restart(std::int64_t total) {
  const int size = static_cast<int>(pieces_.size());
  shares_.deal(total);
  std::int64_t longest = 0;
  for (int node = 0; node < nodes(); ++node) {
    std::int64_t count = 0;
    for (Seat seat : members_of(node)) count += share_count(seat);
    longest = std::max(longest, count);
  }
  chunks_ = (longest + node_chunk_elements_ - 1) / node_chunk_elements_;
  for (int seat = 0; seat < size && chunks_ > 0; ++seat)
    pieces_[static_cast<std::size_t>(seat)] = (share_count(Seat{seat}) + chunks_ - 1) / chunks_;
}

std::span<const Seat> NodeShares::members_of(int node) const {
  std::size_t first = first_members_[static_cast<std::size_t>(node)];
  return std::span(members_).subspan(first, first_members_[static_cast<std::size_t>(node) + 1] - first);
}

std::int64_t NodeShares::piece_begin(std::int64_t chunk, Seat seat) const {
  return share_begin(seat) + std::min(share_count(seat), chunk * pieces_[static_cast<std::size_t>(seat.value)]);
}

std::int64_t NodeShares::piece_count(std::int64_t chunk, Seat seat) const {
  return piece_begin(chunk + 1, seat) - piece_begin(chunk, seat);
}

std::int64_t NodeShares::count_of_node(std::int64_t chunk, int node) const {
  std::int64_t count = 0;
  for (Seat seat : members_of(node)) count += piece_count(chunk, seat);
  return count;
}

std::int64_t NodeShares::carried(std::int64_t chunk, int node, int rail) const {
  return transport::share_of(count_of_node(chunk, node), Seat{rail}, rails_).count();
}

void NodeShares::append_carried(const SegmentArray& batch, std::int64_t chunk, int node, int rail,
                                std::vector<Segment>& to) const {
  auto [begin, end] = transport::share_of(count_of_node(chunk, node), Seat{rail}, rails_);
  std::int64_t at = 0;
  for (Seat seat : members_of(node)) {
    std::int64_t count = piece_count(chunk, seat);
    std::int64_t from = std::clamp(begin - at, std::int64_t{0}, count),
                 until = std::clamp(end - at, std::int64_t{0}, count);
    batch.append_range(piece_begin(chunk, seat) + from, until - from, to);
    at += count;
  }
}

bool NodeShares::is_own(std::int64_t chunk) const {
  std::span<const Seat> mine = members();
  if (static_cast<int>(mine.size()) != rails_) return false;
  std::int64_t all = count_of_node(chunk, my_node_);
  for (int rail = 0; rail < rails_; ++rail)
    if (piece_count(chunk, mine[static_cast<std::size_t>(rail)]) !=
        transport::share_of(all, Seat{rail}, rails_).count())
      return false;
  return true;
}

}  // namespace hvd::collectives::hierarchical
