#pragma once
// How a block finds its share of a list (lists.hpp).
#include "devices/kernels/lists.hpp"
#include "devices/kernels/memory.hpp"

namespace hvd::devices::cuda {

HVD_DEVICE std::uint64_t load_word(const void* from) {
  std::uint64_t word;
  load(from, word);
  return word;
}
template <typename T>
HVD_DEVICE T* load_pointer(const void* from) {
  return reinterpret_cast<T*>(load_word(from));
}

// These copy an entry out of the device's memory, in whole words.
HVD_DEVICE void load_entry(const MoveEntry* from, MoveEntry& entry) {
  const std::uint64_t tiles = load_word(&from->first_tile);
  entry = {load_pointer<const void>(&from->from), load_pointer<void>(&from->to), static_cast<std::uint32_t>(tiles),
           static_cast<std::uint32_t>(tiles >> 32)};
}
HVD_DEVICE void load_entry(const CombinationEntry* from, CombinationEntry& entry) {
  const std::uint64_t tiles = load_word(&from->first_tile);
  entry = {load_pointer<const void>(&from->left), load_pointer<const void>(&from->right), load_pointer<void>(&from->to),
           static_cast<std::uint32_t>(tiles), static_cast<std::uint32_t>(tiles >> 32)};
}
HVD_DEVICE void load_entry(const SumsEntry* from, SumsEntry& entry) {
  const std::uint64_t blocks = load_word(&from->first_block);
  entry = {load_pointer<const void>(&from->left), load_pointer<const void>(&from->right), load_word(&from->count),
           static_cast<std::uint32_t>(blocks), static_cast<std::uint32_t>(blocks >> 32)};
}

template <typename List>
HVD_DEVICE auto entry_at(const List& list, std::uint32_t index) {
  auto entry = list.own[0];
  if (list.entries == nullptr) {
    entry = list.own[index];
  } else {
    load_entry(list.entries + index, entry);
  }
  return entry;
}

// Returns the last entry whose `first` (a tile or a block) is not after `place`. first_of(list, index) reads it.
template <typename List, typename First>
HVD_DEVICE std::uint32_t last_entry_until(const List& list, std::uint32_t place, First first_of) {
  std::uint32_t low = 0, high = list.count;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    (first_of(list, middle) <= place ? low : high) = middle;
  }
  return low;
}

template <typename List>
HVD_DEVICE std::uint32_t first_tile_of(const List& list, std::uint32_t index) {
  if (index == list.count) return list.tiles;
  if (list.entries == nullptr) return list.own[index].first_tile;
  std::uint32_t tile;
  load(&list.entries[index].first_tile, tile);
  return tile;
}

template <typename List>
HVD_DEVICE std::uint32_t first_entry_of_block(const List& list, std::uint32_t first_tile, Place place) {
  if (list.entries == nullptr) return last_entry_until(list, first_tile, first_tile_of<List>);
  std::uint32_t index;
  load(list.first_of_block + place.block, index);
  return index;
}

// Calls visit(entry, its index, first element, elements) for each run of elements that is this block's.
template <typename List, typename Visit>
HVD_DEVICE void visit_runs(const List& list, std::uint32_t elements_of_tile, Place place, Visit visit) {
  std::uint32_t tile = share_begin(list.tiles, place.block, place.blocks);
  const std::uint32_t end = share_begin(list.tiles, place.block + 1, place.blocks);
  if (tile == end) return;
  std::uint32_t index = first_entry_of_block(list, tile, place);
  while (tile < end) {
    const auto entry = entry_at(list, index);
    const std::uint32_t next = first_tile_of(list, index + 1);
    const std::uint32_t stop = next < end ? next : end;
    const std::uint64_t begin = std::uint64_t{tile - entry.first_tile} * elements_of_tile;
    std::uint64_t count = std::uint64_t{stop - tile} * elements_of_tile;
    if (stop == next) count -= elements_of_tile - entry.in_last_tile;
    visit(entry, index, begin, count);
    tile = stop;
    ++index;
  }
}

}  // namespace hvd::devices::cuda
