#pragma once
// The least that two ranks need: a message in each direction from one core's cache to the other's, by the plainest code
// and without anything else. Any further time of a collective is the collective's own cost.
#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hvd::benchmark {

class CoreExchange {
 public:
  // Collective.
  CoreExchange(int rank, std::size_t largest);
  ~CoreExchange();
  CoreExchange(const CoreExchange&) = delete;
  CoreExchange& operator=(const CoreExchange&) = delete;

  // Writes this rank's message. Afterwards its changed cache lines are in this core's cache.
  void write(std::size_t bytes, int turn);
  // Reads the other rank's message after that rank has written it.
  void read(std::size_t bytes);
  // Writes and reads a small message, and waits for the other rank's message.
  void write_and_read(std::size_t bytes);

 private:
  // A message behind its flag. There are two that alternate, because the other rank may still read the last one.
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> number;
    std::uint64_t words[8 * 32 - 1];
  };
  Slot* slots_of(int rank) const { return reinterpret_cast<Slot*>(region_[rank]); }
  std::uint64_t* message_of(int rank) const { return reinterpret_cast<std::uint64_t*>(slots_of(rank) + 2); }

  const int rank_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::byte* region_[2] = {};
  std::uint64_t number_ = 0;
  std::atomic<std::uint64_t> sum_ = 0;  // so that the compiler cannot leave out the reads
};

}  // namespace hvd::benchmark
