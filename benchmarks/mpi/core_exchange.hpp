#pragma once
// What two ranks cannot do without: a message in each direction from one core's cache to the other's, and nothing else,
// by the plainest code. What a collective takes longer is its own.
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

  // Fills this rank's message: its lines lie changed in this core's cache.
  void write(std::size_t bytes, int turn);
  // Reads the other rank's message, which has been written.
  void read(std::size_t bytes);
  // Writes and reads a small message, and waits for the other's.
  void write_and_read(std::size_t bytes);

 private:
  // A message behind its flag. Two that alternate: the other may still read the last one.
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
  std::atomic<std::uint64_t> sum_ = 0;  // so that what is read is needed
};

}  // namespace hvd::benchmark
