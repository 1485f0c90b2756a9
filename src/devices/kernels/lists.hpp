#pragma once
// The parameters of the kernels. Each kernel has one struct of at most 4 KB as its only parameter, which every driver
// accepts. A list that is longer than `own` lies in memory of the device. All addresses are of the device.
//
// Work is divided into tiles. Every block gets an equal run of them, so the bytes of a launch are spread evenly. Each
// tensor begins a new tile: for many tiny tensors the time of a move counts, not its bytes.
#include <cstddef>
#include <cstdint>

#include "devices/kernels/place.hpp"

namespace hvd::devices::cuda {

inline constexpr std::uint32_t threads_per_block = 256;
inline constexpr std::uint32_t blocks_per_multiprocessor = 4;  // at once; each thread then has 64 registers
inline constexpr std::uint32_t threads_of_poison = 32;
inline constexpr std::size_t vector_bytes = 16;
inline constexpr std::size_t most_parameter_bytes = 4096;

// A tile gives each thread one vector of the narrower type.
HVD_DEVICE constexpr std::uint32_t tile_elements(std::size_t narrower_bytes) {
  return threads_per_block * static_cast<std::uint32_t>(vector_bytes / narrower_bytes);
}

// The first tile of a block.
HVD_DEVICE constexpr std::uint32_t share_begin(std::uint32_t tiles, std::uint32_t block, std::uint32_t blocks) {
  return static_cast<std::uint32_t>(std::uint64_t{tiles} * block / blocks);
}

// A run of elements that is moved. All but the last of its tiles are full.
struct MoveEntry {
  const void* from;  // null for zeros
  void* to;
  std::uint32_t first_tile;
  std::uint32_t in_last_tile;  // elements, at least one
};

struct MoveList {
  double scale;
  // For the kernel `poison`: null, or a word in mapped memory that is not 0 after an abort. Then `nan`, repeated, is
  // written to all of `to`.
  const std::uint32_t* aborted;
  std::uint64_t nan;
  std::uint32_t elements_of_tile, target_bytes;  // of an element
  const MoveEntry* entries;                      // null: `own` has them
  const std::uint32_t* first_of_block;           // the entry with which each block begins; not used with `own`
  std::uint32_t count, tiles;
  MoveEntry own[168];
};

// The sums of products of one pair of tensors.
struct AdasumSums {
  double dot, left, right;  // left times right, left times left, right times right
};

// At most so many blocks work on a pair. Their number depends on the number of elements alone, and so does the order
// in which products are added.
inline constexpr std::uint32_t most_blocks_of_a_pair = 64;

struct SumsEntry {
  const void *left, *right;
  std::uint64_t count;
  std::uint32_t first_block, blocks;
};

struct SumsList {
  double* partial;   // three for each thread of all blocks
  AdasumSums* sums;  // one for each entry
  const SumsEntry* entries;
  std::uint32_t count, blocks;
  SumsEntry own[127];
};

// Adds two tensors with the weights that follow from sums[index of the entry].
struct CombinationEntry {
  const void *left, *right;
  void* to;  // may be equal to left or right
  std::uint32_t first_tile, in_last_tile;
};

struct CombinationList {
  double scale;
  const AdasumSums* sums;
  const CombinationEntry* entries;
  const std::uint32_t* first_of_block;
  std::uint32_t count, tiles;
  CombinationEntry own[126];
};

// A word in mapped memory at which the host looks, and what it gets when the stream is there.
struct SignalList {
  std::uint32_t* word;
  std::uint32_t value;
};

static_assert(sizeof(MoveList) <= most_parameter_bytes && sizeof(SumsList) <= most_parameter_bytes &&
              sizeof(CombinationList) <= most_parameter_bytes);

}  // namespace hvd::devices::cuda
