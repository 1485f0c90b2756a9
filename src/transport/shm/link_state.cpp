#include "transport/shm/link_state.hpp"

#include <algorithm>
#include <string>

#include "base/processor.hpp"
#include "connections/thread_hub.hpp"

namespace hvd::transport::shm {

bool LinkState::is_amd() noexcept {
#if defined(__x86_64__)
  return processor().is_amd;
#else
  return false;
#endif
}

bool LinkState::all_have_read(std::uint64_t v, int& waiting_for) {
  for (int seat = 0; seat < size; ++seat) {
    if (seat == me) continue;
    SeatArea& its = area.seat(seat);
    if (its.flags->consumed.value.load(std::memory_order_acquire) >= v) continue;
    if (its.small[(v + 1) & 1]->sequence.load(std::memory_order_acquire) >= v + 1) continue;
    waiting_for = seat;
    return false;
  }
  small_read_by_all = std::max(small_read_by_all, v);
  return true;
}

bool LinkState::pairs_are_free(int& waiting_for) {
  for (int seat = 0; seat < size; ++seat) {
    if (area.pair(me, seat).taken.value.load(std::memory_order_acquire) >=
        pairs[static_cast<std::size_t>(seat)].sent_end)
      continue;
    waiting_for = seat;
    return false;
  }
  pairs_use_slab = false;
  return true;
}

void LinkState::notice_dead_threads() {
  if (threads == nullptr || aborted || !threads->has_deaths()) return;
  for (Rank rank : group.ranks) {
    if (!threads->is_dead(rank)) continue;
    aborted = Error(ErrorCode::peer_lost, "rank " + std::to_string(rank.value) + " ended");
    return;
  }
}

}  // namespace hvd::transport::shm
