#pragma once
// Turns lists of tensors into launches of the kernels, without any call of CUDA. The caller launches `blocks` blocks of
// threads_per_block threads with the list as the only parameter; if there are no blocks, there is nothing to do. Before
// that it queues a copy of descriptor_bytes from the descriptors' host memory to their device memory.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/data_type.hpp"
#include "base/result.hpp"
#include "devices/kernels/kernel_names.hpp"
#include "devices/kernels/lists.hpp"
#include "devices/moves.hpp"

namespace hvd::devices::cuda {

struct Chip {
  std::uint32_t multiprocessors = 1;
};

inline constexpr std::uint32_t most_blocks_of_a_launch = 4096;

// Memory for a list that does not fit into the parameters. The kernels need `host` at the same alignment as `device`, a
// multiple of 8. The host memory is written during the call.
struct Descriptors {
  std::byte* host = nullptr;
  const std::byte* device = nullptr;
  std::size_t bytes = 0;
};

struct Launch {
  Kernel kernel = Kernel::move_bytes;
  std::uint32_t blocks = 0;
  std::size_t descriptor_bytes = 0;
};

// A word in mapped memory, at its address on the device, that is not 0 after an abort. Then floating results become
// NaN. Null if there is no such word.
using AbortWord = const std::uint32_t*;

// Returns the bytes of descriptors with which a list of so many entries can be launched; 0 if it fits into the
// parameters.
std::size_t descriptors_of_moves(std::size_t moves, const Chip& chip) noexcept;
// Moves alone do not look at the word of an abort: poison_after() is the launch that follows, with the same list.
Result<Launch> launch_moves(std::span<const Move> moves, const Treatment& treatment, const Chip& chip,
                            const Descriptors& descriptors, AbortWord aborted, MoveList& list);
Launch poison_after(const Launch& moves, const MoveList& list) noexcept;

// Writes NaN to all `to` if the word is set, and does nothing otherwise. For types that are not floating there is
// nothing to do. Needs the descriptors of so many moves.
Result<Launch> launch_poison(std::span<const Move> moves, DataType dtype, const Chip& chip,
                             const Descriptors& descriptors, AbortWord aborted, MoveList& list);

// A pair of tensors for Adasum. `to` may be equal to left or right; the sums do not use it.
struct AdasumPair {
  const void* left;
  const void* right;
  void* to;
  std::int64_t count;
};
std::size_t descriptors_of_pairs(std::size_t pairs, const Chip& chip) noexcept;

// The sums of all pairs, in `sums` (one for each pair, in device memory). Both launches have the same list and the same
// descriptors: first `threads`, then `pairs`. `partial` is device memory of bytes_of_partial_sums().
struct SumsLaunches {
  Launch threads, pairs;
};
std::size_t bytes_of_partial_sums(std::span<const AdasumPair> pairs, DataType dtype) noexcept;
Result<SumsLaunches> launch_sums(std::span<const AdasumPair> pairs, DataType dtype, void* partial, AdasumSums* sums,
                                 const Descriptors& descriptors, SumsList& list);

// to = (left times its weight + right times its weight) * scale, with the weights that follow from sums[pair].
Result<Launch> launch_combination(std::span<const AdasumPair> pairs, DataType dtype, const AdasumSums* sums,
                                  double scale, const Chip& chip, const Descriptors& descriptors,
                                  CombinationList& list);

}  // namespace hvd::devices::cuda
