// Measures what the host spends on the plan of one launch that moves many tensors of a GPU: choosing the kernel,
// dividing the work and writing the list. No GPU is needed, and the calls of the driver are not part of it. Goal: 10 µs
// for 800 tensors.
//
//   build/release/bin/hvd_launch_cost
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "devices/cuda/launches.hpp"

namespace {

using namespace hvd;
using namespace hvd::devices;
using Clock = std::chrono::steady_clock;

constexpr int rounds = 2001;
constexpr cuda::Chip h100 = {132};

void* address(std::uint64_t number) {
  return reinterpret_cast<void*>(number);
}

// Addresses that no memory has, new ones in every round.
std::vector<Move> moves_of(std::size_t tensors, std::uint64_t round) {
  std::mt19937_64 random(round);
  std::vector<Move> moves;
  std::uint64_t place = 0x7F0000000000 + (round << 20);
  for (std::size_t i = 0; i < tensors; ++i) {
    const auto count = static_cast<std::int64_t>(1 + random() % 300'000);
    moves.push_back({address(place), address(place + (std::uint64_t{1} << 38)), count});
    place += static_cast<std::uint64_t>(count) * 4 / 512 * 512 + 512;
  }
  return moves;
}

void measure(std::size_t tensors, const Treatment& treatment, const char* what) {
  std::vector<std::uint64_t> words(cuda::descriptors_of_moves(tensors, h100) / 8 + 1);
  auto* bytes = reinterpret_cast<std::byte*>(words.data());
  const cuda::Descriptors descriptors = {bytes, bytes, words.size() * 8};
  std::vector<double> microseconds;
  std::uint32_t blocks = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto moves = moves_of(tensors, static_cast<std::uint64_t>(round));
    cuda::MoveList list;
    const auto begin = Clock::now();
    const auto launch = cuda::launch_moves(moves, treatment, h100, descriptors, nullptr, list);
    microseconds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    blocks = launch ? launch->blocks : 0;
  }
  std::sort(microseconds.begin(), microseconds.end());
  std::printf("%5zu tensors, %-12s %4u blocks: median %6.2f us, 99 %% %6.2f us\n", tensors, what, blocks,
              microseconds[rounds / 2], microseconds[rounds * 99 / 100]);
}

}  // namespace

int main() {
  for (std::size_t tensors : {1, 160, 200, 800, 3000}) {
    measure(tensors, {DataType::f32, DataType::f32, 1.0}, "copied");
    measure(tensors, {DataType::f32, DataType::bf16, 0.5}, "f32 to bf16");
  }
}
