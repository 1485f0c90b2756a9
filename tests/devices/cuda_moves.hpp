#pragma once
// Runs launches of the kernels of devices/cuda on the host.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "devices/cuda/launches.hpp"
#include "devices/naive_moves.hpp"
#include "fixtures/cuda_kernels/on_host.hpp"

namespace hvd::devices::cuda {

using naive::Arrays, naive::all_treatments, naive::any_bytes, naive::at, naive::is_half, naive::round_once,
    naive::with_type;

// The host is its own device: one piece of memory for both sides.
class HostDescriptors {
 public:
  explicit HostDescriptors(std::size_t bytes) : words_((bytes + 7) / 8) {}
  Descriptors get() {
    auto* bytes = reinterpret_cast<std::byte*>(words_.data());
    return {bytes, bytes, words_.size() * 8};
  }

 private:
  std::vector<std::uint64_t> words_;
};

template <typename List>
void run(const Launch& launch, const List& list) {
  const KernelOnHost* kernel = kernel_on_host(facts_of(launch.kernel).name);
  ASSERT_NE(kernel, nullptr);
  ASSERT_EQ(kernel->parameter_bytes, sizeof list);
  if (launch.blocks > 0) kernel->run(&list, launch.blocks);
}

inline Launch run_moves(std::span<const Move> moves, const Treatment& treatment, const Chip& chip,
                        AbortWord aborted = nullptr) {
  HostDescriptors descriptors(descriptors_of_moves(moves.size(), chip));
  MoveList list;
  const auto launch = launch_moves(moves, treatment, chip, descriptors.get(), aborted, list);
  if (!launch) ADD_FAILURE() << launch.error().message;
  if (!launch) return {};
  EXPECT_LE(launch->descriptor_bytes, descriptors.get().bytes);
  run(*launch, list);
  run(poison_after(*launch, list), list);
  return *launch;
}

}  // namespace hvd::devices::cuda
