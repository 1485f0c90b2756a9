#pragma once
// The collectives over memory that the seats of a link share. Each verb has one file. Every task uses the link's state,
// which must outlive the task.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/collective.hpp"
#include "base/task.hpp"
#include "devices/host/host_kernels.hpp"
#include "transport/segments/shares.hpp"
#include "transport/shm/link_state.hpp"
#include "transport/transport.hpp"

namespace hvd::transport::shm {

std::unique_ptr<Task> plan_allreduce(LinkState& link, const Collective& collective);
std::unique_ptr<Task> plan_broadcast(LinkState& link, const Collective& collective);
std::unique_ptr<Task> plan_allgather(LinkState& link, const Collective& collective);
std::unique_ptr<Task> plan_reduce_scatter(LinkState& link, const Collective& collective);
std::unique_ptr<Task> plan_alltoall(LinkState& link, const Collective& collective);
std::unique_ptr<Task> plan_barrier(LinkState& link, const Collective& collective);

// From this size on, results do not fit into the caches, so they are stored past them.
inline constexpr std::size_t streaming_from_bytes = 4 << 20;

// The task's position in the order of the link's tasks, and the seat that the task waits for.
class Turn {
 public:
  explicit Turn(LinkState& link) : link_(link) {}
  void queue() noexcept { ticket_ = link_.next_ticket++; }
  bool has_come() const noexcept { return link_.turn == ticket_; }
  Progress pass() noexcept {
    ++link_.turn;
    waiting_for = -1;
    return Progress::done;
  }
  Progress wait_for(int seat) {
    waiting_for = seat;
    if (link_.threads != nullptr) link_.notice_dead_threads();
    return link_.aborted ? Progress::failed : Progress::pending;
  }
  int waiting_for = -1;

 private:
  LinkState& link_;
  std::uint64_t ticket_ = 0;
};

// The data that a plan needs to call the kernel.
struct Reduction {
  explicit Reduction(const Collective& collective)
      : kernel(devices::reduce_kernel(collective.dtype, collective.op)),
        scale{collective.prescale, collective.postscale},
        shift(size_of(collective.dtype) == 8   ? 3
              : size_of(collective.dtype) == 4 ? 2
              : size_of(collective.dtype) == 2 ? 1
                                               : 0) {}

  void operator()(const void* const* sources, int source_count, void* const* destinations, int destination_count,
                  std::size_t bytes) const {
    kernel(sources, source_count, destinations, destination_count, static_cast<std::int64_t>(bytes >> shift), scale);
  }

  devices::ReduceKernel kernel;
  devices::Scale scale;
  unsigned shift;  // shifting bytes by it gives elements
};

// The parts of allgather's output and of reduce_scatter's input, in bytes. A barrier has empty ones.
class BytesOfSeats {
 public:
  BytesOfSeats(const Collective& collective, int size)
      : element_(size_of(collective.dtype)), shares_(collective.verb, size) {}

  // Has the meaning of Task::resize().
  void resize(std::span<const std::int64_t> sent, std::span<const std::int64_t> received) {
    shares_.resize(sent, received);
  }
  // Prepares for an array of `total_bytes`. Panics if the length of my share is not that of my segments.
  void deal(std::size_t total_bytes, int me, std::size_t my_bytes);
  std::size_t begin(int seat) const { return static_cast<std::size_t>(shares_.begin(seat)) * element_; }
  std::size_t bytes(int seat) const { return static_cast<std::size_t>(shares_.count(seat)) * element_; }
  std::size_t largest() const { return largest_; }

 private:
  std::size_t element_;
  transport::Shares shares_;
  std::size_t largest_ = 0;
};

inline std::uint64_t rounds_of(std::size_t bytes, std::size_t step) {
  return (bytes + step - 1) / step;
}

}  // namespace hvd::transport::shm
