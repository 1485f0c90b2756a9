#include "devices/cuda/launches.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <type_traits>

#include "base/panic.hpp"

namespace hvd::devices::cuda {
namespace {

std::optional<Kernel> floating_kernel(DataType from, DataType to) {
  if (!is_floating(from) || !is_floating(to)) return std::nullopt;
  return static_cast<Kernel>(static_cast<std::size_t>(Kernel::move_f16_f16) + floating_types * row_of_floating(from) +
                             row_of_floating(to));
}
static_assert(static_cast<std::size_t>(Kernel::move_f64_f64) - static_cast<std::size_t>(Kernel::move_f16_f16) + 1 ==
              floating_types * floating_types);

std::optional<Kernel> kernel_of(const Treatment& treatment) {
  if (treatment.from == treatment.to) {
    if (treatment.scale == 1.0) return Kernel::move_bytes;
    switch (treatment.from) {
      case DataType::boolean: return Kernel::move_bytes;
      case DataType::u8: return Kernel::scale_u8;
      case DataType::i8: return Kernel::scale_i8;
      case DataType::u16: return Kernel::scale_u16;
      case DataType::i16: return Kernel::scale_i16;
      case DataType::i32: return Kernel::scale_i32;
      case DataType::i64: return Kernel::scale_i64;
      case DataType::u32: return Kernel::scale_u32;
      case DataType::u64: return Kernel::scale_u64;
      case DataType::f16:
      case DataType::bf16:
      case DataType::f32:
      case DataType::f64: break;
    }
  }
  return floating_kernel(treatment.from, treatment.to);
}

// A NaN, repeated to eight bytes; zero for a type that has none.
std::uint64_t nan_of(DataType type) {
  switch (type) {
    case DataType::f16: return 0x7E007E007E007E00;
    case DataType::bf16: return 0x7FC07FC07FC07FC0;
    case DataType::f32: return 0x7FC000007FC00000;
    case DataType::f64: return 0x7FF8000000000000;
    case DataType::boolean:
    case DataType::u8:
    case DataType::i8:
    case DataType::u16:
    case DataType::i16:
    case DataType::i32:
    case DataType::i64:
    case DataType::u32:
    case DataType::u64: break;
  }
  return 0;
}

// Large launches have more blocks than fit at once, so that multiprocessors that are done early take more. What that
// brings is not certain: with 1 GB an H200 changes between two rates by itself (benchmarks/RESULTS-gpu.md). A block of
// less than eight tiles has too little under way: 8 MB took longer with more blocks.
constexpr std::uint32_t most_waves = 4, tiles_of_a_block = 8;

std::uint32_t blocks_at_once(const Chip& chip) noexcept {
  return std::max(chip.multiprocessors, 1U) * blocks_per_multiprocessor;
}
std::uint32_t most_blocks(const Chip& chip) noexcept {
  return std::min(blocks_at_once(chip) * most_waves, most_blocks_of_a_launch);
}
std::uint32_t blocks_for(std::uint32_t tiles, const Chip& chip) noexcept {
  const std::uint32_t wanted = std::max(tiles / tiles_of_a_block, blocks_at_once(chip));
  return std::min({tiles, wanted, most_blocks(chip)});
}

template <typename List>
constexpr std::size_t own_entries = std::extent_v<decltype(List::own)>;
template <typename List>
using EntryOf = std::remove_extent_t<decltype(List::own)>;

// The entries of a list: its own, or those in the descriptors.
template <typename List>
EntryOf<List>* entries_of(List& list, std::size_t count, const Descriptors& descriptors, std::size_t needed) {
  list.entries = nullptr;
  list.count = 0;
  if (count <= own_entries<List>) return list.own;
  if (descriptors.bytes < needed || reinterpret_cast<std::uintptr_t>(descriptors.host) % 8 != 0 ||
      reinterpret_cast<std::uintptr_t>(descriptors.device) % 8 != 0)
    panic("a list of " + std::to_string(count) + " tensors needs " + std::to_string(needed) +
          " bytes of descriptors at a multiple of 8, found " + std::to_string(descriptors.bytes) + " bytes");
  list.entries = reinterpret_cast<const EntryOf<List>*>(descriptors.device);
  return reinterpret_cast<EntryOf<List>*>(descriptors.host);
}

// Numbers the tiles of a list.
class Tiles {
 public:
  explicit Tiles(std::uint32_t elements_of_tile) : shift_(std::countr_zero(elements_of_tile)) {}

  // A tensor without elements has no tile. Its last tile counts as full, so that nothing is left of it.
  template <typename Entry>
  void append(std::int64_t count, Entry& entry) {
    const std::uint64_t elements = std::uint64_t{1} << shift_, last = static_cast<std::uint64_t>(count) - 1;
    entry.first_tile = static_cast<std::uint32_t>(tiles_);
    entry.in_last_tile = static_cast<std::uint32_t>(last & (elements - 1)) + 1;
    if (count > 0) tiles_ += (last >> shift_) + 1;
  }
  std::uint64_t count() const { return tiles_; }

 private:
  const int shift_;
  std::uint64_t tiles_ = 0;
};

// Finds the last entry that begins at or before each block. There is room for one block more. It has no branches that
// a processor could guess wrong, for that took most of the time.
template <typename List>
void find_first_of_blocks(const EntryOf<List>* entries, const List& list, std::uint32_t blocks,
                          std::uint32_t* first_of_block) {
  std::fill_n(first_of_block, blocks + 1, 0);
  // The first block that begins at or after a tile is tile * blocks / tiles, rounded up. A later entry at the same
  // block takes the place of an earlier one. The product has less than 53 bits, so the division does not round up to
  // the next number.
  const double tiles = list.tiles;
  for (std::uint32_t index = 1; index < list.count; ++index) {
    const std::uint64_t product = std::uint64_t{entries[index].first_tile} * blocks;
    const auto whole = static_cast<std::uint32_t>(static_cast<double>(static_cast<std::int64_t>(product)) / tiles);
    const std::uint32_t more = std::uint64_t{whole} * list.tiles < product ? 1 : 0;
    first_of_block[whole + more] = index;
  }
  std::uint32_t last = 0;
  for (std::uint32_t block = 0; block < blocks; ++block) {
    last = std::max(last, first_of_block[block]);
    first_of_block[block] = last;
  }
}

// Ends a list of tiles: chooses the blocks and, in descriptors, writes the entry with which each of them begins.
template <typename List>
Result<Launch> launch_tiles(Kernel kernel, const EntryOf<List>* entries, std::size_t count, const Tiles& tiles,
                            const Chip& chip, const Descriptors& descriptors, List& list) {
  if (tiles.count() > std::numeric_limits<std::uint32_t>::max())
    return Error(ErrorCode::unsupported, "expected at most 2^32 tiles of 4 KB in one call to a GPU, found " +
                                             std::to_string(tiles.count()) + ": use fewer or smaller tensors");
  list.count = static_cast<std::uint32_t>(count);
  list.tiles = static_cast<std::uint32_t>(tiles.count());
  list.first_of_block = nullptr;
  Launch launch{kernel, blocks_for(list.tiles, chip), 0};
  if (list.entries == nullptr) return launch;
  const std::size_t before = count * sizeof(*entries);
  auto* first_of_block = reinterpret_cast<std::uint32_t*>(descriptors.host + before);
  list.first_of_block = reinterpret_cast<const std::uint32_t*>(descriptors.device + before);
  if (launch.blocks > 0) find_first_of_blocks(entries, list, launch.blocks, first_of_block);
  launch.descriptor_bytes = before + launch.blocks * sizeof(std::uint32_t);
  return launch;
}

void require_count(std::int64_t count) {
  if (count < 0) panic("a tensor for a GPU has " + std::to_string(count) + " elements");
}

Result<Launch> launch_list(Kernel kernel, std::span<const Move> moves, std::size_t from_bytes, std::size_t to_bytes,
                           const Chip& chip, const Descriptors& descriptors, MoveList& list) {
  MoveEntry* const entries = entries_of(list, moves.size(), descriptors, descriptors_of_moves(moves.size(), chip));
  const bool are_bytes = kernel == Kernel::move_bytes || kernel == Kernel::poison;
  const std::int64_t factor = are_bytes ? static_cast<std::int64_t>(to_bytes) : 1;
  list.elements_of_tile = tile_elements(are_bytes ? 1 : std::min(from_bytes, to_bytes));
  list.target_bytes = are_bytes ? 1 : static_cast<std::uint32_t>(to_bytes);
  Tiles tiles(list.elements_of_tile);
  const bool keeps_itself = kernel == Kernel::move_bytes && list.aborted == nullptr;
  std::size_t count = 0;
  for (const Move& move : moves) {
    require_count(move.count);
    if (move.count == 0 || (keeps_itself && move.from == move.to)) continue;
    MoveEntry& entry = entries[count++];
    entry.from = kernel == Kernel::poison ? move.to : move.from;  // null would be zeros
    entry.to = move.to;
    tiles.append(move.count * factor, entry);
  }
  return launch_tiles(kernel, entries, count, tiles, chip, descriptors, list);
}

Result<Kernel> adasum_kernel(Kernel of_f16, DataType dtype) {
  if (!is_floating(dtype))
    return Error(ErrorCode::unsupported, std::string("Adasum expects a floating type, found ") + name_of(dtype));
  return static_cast<Kernel>(static_cast<int>(of_f16) + static_cast<int>(dtype) - static_cast<int>(DataType::f16));
}
static_assert(static_cast<int>(Kernel::adasum_sums_f64) - static_cast<int>(Kernel::adasum_sums_f16) == 3 &&
              static_cast<int>(Kernel::adasum_combine_f64) - static_cast<int>(Kernel::adasum_combine_f16) == 3);

std::uint32_t blocks_of_pair(std::int64_t count, DataType dtype) {
  require_count(count);
  const std::int64_t elements = tile_elements(size_of(dtype));
  const std::int64_t tiles = count / elements + (count % elements != 0 ? 1 : 0);
  return static_cast<std::uint32_t>(std::min<std::int64_t>(tiles, most_blocks_of_a_pair));
}

}  // namespace

std::size_t descriptors_of_moves(std::size_t moves, const Chip& chip) noexcept {
  if (moves <= own_entries<MoveList>) return 0;
  return moves * sizeof(MoveEntry) + (most_blocks(chip) + 1) * sizeof(std::uint32_t);
}

std::size_t descriptors_of_pairs(std::size_t pairs, const Chip& chip) noexcept {
  if (pairs <= own_entries<CombinationList>) return 0;
  static_assert(sizeof(SumsEntry) == sizeof(CombinationEntry) && own_entries<CombinationList> <= own_entries<SumsList>);
  return pairs * sizeof(CombinationEntry) + (most_blocks(chip) + 1) * sizeof(std::uint32_t);
}

Result<Launch> launch_moves(std::span<const Move> moves, const Treatment& treatment, const Chip& chip,
                            const Descriptors& descriptors, AbortWord aborted, MoveList& list) {
  const auto kernel = kernel_of(treatment);
  if (!kernel)
    return Error(ErrorCode::unsupported, std::string("a GPU converts floating types into each other, found ") +
                                             name_of(treatment.from) + " and " + name_of(treatment.to) +
                                             ": convert before or after the operation");
  list.scale = treatment.scale;
  list.aborted = is_floating(treatment.to) ? aborted : nullptr;
  list.nan = nan_of(treatment.to);
  return launch_list(*kernel, moves, size_of(treatment.from), size_of(treatment.to), chip, descriptors, list);
}

Result<Launch> launch_poison(std::span<const Move> moves, DataType dtype, const Chip& chip,
                             const Descriptors& descriptors, AbortWord aborted, MoveList& list) {
  if (!is_floating(dtype) || aborted == nullptr) return Launch{Kernel::poison, 0, 0};
  list.scale = 1.0;
  list.aborted = aborted;
  list.nan = nan_of(dtype);
  auto launch = launch_list(Kernel::poison, moves, size_of(dtype), size_of(dtype), chip, descriptors, list);
  if (launch) launch->blocks = std::min(launch->blocks, 1U);
  return launch;
}

Launch poison_after(const Launch& moves, const MoveList& list) noexcept {
  const bool is_wanted = list.aborted != nullptr && moves.kernel != Kernel::poison && moves.blocks > 0;
  return {Kernel::poison, is_wanted ? 1U : 0U, 0};
}

std::size_t bytes_of_partial_sums(std::span<const AdasumPair> pairs, DataType dtype) noexcept {
  std::size_t blocks = 0;
  for (const AdasumPair& pair : pairs) blocks += blocks_of_pair(pair.count, dtype);
  return blocks * threads_per_block * sizeof(AdasumSums);
}

Result<SumsLaunches> launch_sums(std::span<const AdasumPair> pairs, DataType dtype, void* partial, AdasumSums* sums,
                                 const Descriptors& descriptors, SumsList& list) {
  const auto kernel = adasum_kernel(Kernel::adasum_sums_f16, dtype);
  if (!kernel) return kernel.error();
  const bool is_long = pairs.size() > own_entries<SumsList>;
  const std::size_t bytes = is_long ? pairs.size() * sizeof(SumsEntry) : 0;
  SumsEntry* const entries = entries_of(list, pairs.size(), descriptors, bytes);
  std::uint32_t blocks = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::uint32_t of_pair = blocks_of_pair(pairs[i].count, dtype);
    entries[i] = {pairs[i].left, pairs[i].right, static_cast<std::uint64_t>(pairs[i].count), blocks, of_pair};
    blocks += of_pair;
  }
  list.partial = static_cast<double*>(partial);
  list.sums = sums;
  list.count = static_cast<std::uint32_t>(pairs.size());
  list.blocks = blocks;
  return SumsLaunches{{*kernel, blocks, bytes}, {Kernel::adasum_sums, list.count, bytes}};
}

Result<Launch> launch_combination(std::span<const AdasumPair> pairs, DataType dtype, const AdasumSums* sums,
                                  double scale, const Chip& chip, const Descriptors& descriptors,
                                  CombinationList& list) {
  const auto kernel = adasum_kernel(Kernel::adasum_combine_f16, dtype);
  if (!kernel) return kernel.error();
  CombinationEntry* const entries =
      entries_of(list, pairs.size(), descriptors, descriptors_of_pairs(pairs.size(), chip));
  Tiles tiles(tile_elements(size_of(dtype)));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    require_count(pairs[i].count);
    entries[i].left = pairs[i].left;
    entries[i].right = pairs[i].right;
    entries[i].to = pairs[i].to;
    tiles.append(pairs[i].count, entries[i]);
  }
  list.scale = scale;
  list.sums = sums;
  return launch_tiles(*kernel, entries, pairs.size(), tiles, chip, descriptors, list);
}

}  // namespace hvd::devices::cuda
