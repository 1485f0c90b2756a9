#pragma once
// The state that the tasks of one link share in this process: the mapped area, the task whose turn it is, and the use
// of the slots and slabs. Only one thread uses it.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/group.hpp"
#include "base/result.hpp"
#include "transport/shm/flag_post.hpp"
#include "transport/shm/regions.hpp"
#include "transport/shm/shared_area.hpp"

namespace hvd::connections {
class ThreadHub;
}

namespace hvd::transport::shm {

// Small slots. Exchanges are numbered v = 1, 2, …, equally on all seats. Exchange v uses slot v mod 2 of each seat that
// sends data. A seat may overwrite its slot for v when all others have read the content for v - 2:
//  1. If every seat posts, a seat's post for v - 1 says that this seat has read all slots of v - 2. So no wait is
//     needed.
//  2. If only the root posts (broadcast), the others raise `consumed` to v instead.
//
// Slabs. Chunks are numbered for the whole life of the link (slab_count, equal on all seats). The value of a flag is
// the number of chunks done. When a task begins, its own slab must be free: slab_awaited is the value that all `taken`
// flags must reach. Alltoalls do not use these numbers; they count the pieces of every pair of seats.
//
// A run: tasks of one verb that followed each other, with no other use of the slabs between them.
struct SlabRun {
  std::uint64_t begin = 0, end = 0;  // number of the run's first chunk, and the number after its last chunk
  std::uint64_t exchanges = 0;       // the value of LinkState::exchanges during the run
};

// This seat's knowledge of the alltoalls with another seat (alltoall.cpp). Both seats number the pieces of the pair
// equally.
struct Pair {
  std::uint64_t next = 0;        // number of the first piece of the next task
  std::uint64_t sent_end = 0;    // the number after the last piece that this seat sent
  std::uint64_t both_since = 0;  // from this number on, each piece had a piece of the other seat with the same number
  // Since the last verb of another kind:
  std::uint64_t begun = 0;                       // number of the first piece since then
  std::uint64_t slab_count = ~std::uint64_t{0};  // value of the link's slab_count at that time
  bool has_heard = false;                        // this seat knows that the other seat has begun an alltoall too
};

struct LinkState {
  LinkState(Group members, std::shared_ptr<void> memory, const Shape& shape, FlagPost flag_post,
            std::shared_ptr<connections::ThreadHub> hub)
      : group(std::move(members)),
        size(group.size()),
        me(group.me.value),
        keeper(std::move(memory)),
        area(keeper.get(), shape),
        post(std::move(flag_post)),
        threads(std::move(hub)),
        pairs(static_cast<std::size_t>(size)) {}

  const Group group;
  const int size;
  const int me;
  const std::shared_ptr<void> keeper;
  SharedArea area;
  FlagPost post;
  const std::shared_ptr<connections::ThreadHub> threads;  // notices the death of a rank that is a thread

  std::uint64_t next_ticket = 0;  // the ticket that the next restart gets
  std::uint64_t turn = 0;         // ticket of the task that may run now

  std::uint64_t small_count = 0;        // number of exchanges begun
  std::uint64_t small_read_by_all = 0;  // number of exchanges that surely all seats have read
  std::uint64_t slab_count = 0;
  std::uint64_t slab_awaited = 0;
  std::uint64_t exchanges = 0;  // number of alltoalls begun
  SlabRun gathers, scatters;    // the last runs of allgathers and of reduce_scatters
  std::vector<Pair> pairs;      // one for each seat
  bool pairs_use_slab = false;  // others may still read pieces of an alltoall in this seat's slab

  std::shared_ptr<SharedRegions> regions;  // null if every batch is packed

  std::optional<Error> aborted;

  // True if stores should bypass the caches when other seats will read the data but not write them. Measured on AMD's
  // Zen 4: a store to a line that another core has read takes 27 ns, and such stores do not overlap (2.3 GB/s). Stores
  // that bypass the caches reach 30 GB/s, and the others read the data as fast as before. Intel's processors are faster
  // with plain stores, which stay in the shared cache.
  const bool publishes_past_caches = is_amd();
  // Smaller data are not worth it.
  static constexpr std::size_t streaming_publish_bytes = 8 << 10;
  bool has_to_stream(std::size_t bytes) const { return publishes_past_caches && bytes >= streaming_publish_bytes; }

  // Takes this many chunks for a task of the run's verb. Returns the number of the first chunk.
  std::uint64_t take_chunks(SlabRun& run, std::uint64_t chunks) {
    std::uint64_t first = slab_count;
    if (first != run.end || exchanges != run.exchanges) run.begin = first;
    slab_count += chunks;
    run.end = slab_count;
    run.exchanges = exchanges;
    return first;
  }

  // Returns the first other seat, beginning with `from`, whose slot has not reached exchange v. Returns `size` if there
  // is none.
  int missing_small(std::uint64_t v, int from) {
    int seat = from;
    while (seat < size && (seat == me || area.seat(seat).small[v & 1]->sequence.load(std::memory_order_acquire) >= v))
      ++seat;
    return seat;
  }
  // Does the same for a flag of SeatFlags.
  int missing(Flag SeatFlags::*flag, std::uint64_t value, int from) {
    int seat = from;
    while (seat < size && (seat == me || (area.seat(seat).flags->*flag).value.load(std::memory_order_acquire) >= value))
      ++seat;
    return seat;
  }
  // True if this seat's slot for the next exchange may be overwritten. If not, `waiting_for` is a seat that still reads
  // it.
  bool small_slot_is_free(int& waiting_for) {
    std::uint64_t next = small_count + 1;
    if (next <= 2 || small_read_by_all >= next - 2) return true;
    return all_have_read(next - 2, waiting_for);
  }
  std::byte* small_payload(int seat, std::uint64_t v, std::size_t bytes) {
    SeatArea& its = area.seat(seat);
    return bytes <= inline_bytes ? its.small[v & 1]->payload : its.small_data[v & 1];
  }
  void post_small(std::uint64_t v) { post.post(area.seat(me).small[v & 1]->sequence, v); }
  // True if this seat's slab may be overwritten.
  bool slab_is_free(int& waiting_for) {
    return (!pairs_use_slab || pairs_are_free(waiting_for)) && slab_is_free_of_others(waiting_for);
  }
  // True if no verb other than alltoall still needs this seat's slab.
  bool slab_is_free_of_others(int& waiting_for) {
    if (slab_awaited == 0) return true;
    int seat = missing(&SeatFlags::taken, slab_awaited, 0);
    if (seat < size) {
      waiting_for = seat;
      return false;
    }
    slab_awaited = 0;
    return true;
  }

  // Called on the slow path of step(). Sets `aborted` if a rank that is a thread has died, so that nothing waits for
  // it.
  void notice_dead_threads();

 private:
  static bool is_amd() noexcept;
  bool all_have_read(std::uint64_t v, int& waiting_for);
  bool pairs_are_free(int& waiting_for);
};

}  // namespace hvd::transport::shm
