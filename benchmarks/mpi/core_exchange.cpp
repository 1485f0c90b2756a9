#include "mpi/core_exchange.hpp"

#include <new>

namespace hvd::benchmark {
namespace {

std::uint64_t sum_of(const std::uint64_t* words, std::size_t count) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += words[i];
  return sum;
}

}  // namespace

CoreExchange::CoreExchange(int rank, std::size_t largest) : rank_(rank) {
  void* mine = nullptr;
  MPI_Win_allocate_shared(static_cast<MPI_Aint>(64 + 2 * sizeof(Slot) + largest), 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                          &mine, &window_);
  for (int other = 0; other < 2; ++other) {
    MPI_Aint bytes = 0;
    int unit = 1;
    void* memory = nullptr;
    MPI_Win_shared_query(window_, other, &bytes, &unit, &memory);
    auto address = reinterpret_cast<std::uintptr_t>(memory);
    region_[other] = static_cast<std::byte*>(memory) + (64 - address % 64) % 64;
  }
  for (int slot = 0; slot < 2; ++slot) new (slots_of(rank) + slot) Slot{};
  MPI_Barrier(MPI_COMM_WORLD);
}

CoreExchange::~CoreExchange() {
  MPI_Win_free(&window_);
}

void CoreExchange::write(std::size_t bytes, int turn) {
  // memset is not used, because it writes long messages past the caches.
  std::uint64_t* words = message_of(rank_);
  for (std::size_t i = 0; i < bytes / 8; ++i) words[i] = static_cast<std::uint64_t>(turn) + i;
}

void CoreExchange::read(std::size_t bytes) {
  sum_.store(sum_of(message_of(1 - rank_), bytes / 8), std::memory_order_relaxed);
}

void CoreExchange::write_and_read(std::size_t bytes) {
  std::uint64_t number = ++number_;
  Slot &mine = slots_of(rank_)[number % 2], &other = slots_of(1 - rank_)[number % 2];
  for (std::size_t i = 0; i < bytes / 8; ++i) mine.words[i] = number;
  mine.number.store(number, std::memory_order_release);
  while (other.number.load(std::memory_order_acquire) != number) {
  }
  sum_.store(sum_of(other.words, bytes / 8), std::memory_order_relaxed);
}

}  // namespace hvd::benchmark
