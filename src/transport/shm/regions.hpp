#pragma once
// Memory for tensors that all ranks of a node have mapped, so that tensors in it are reduced in place. A region has an
// equal part for every seat. A tensor that is at the same place in all parts needs no packing.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace hvd::transport::shm {

// Only the engine's thread uses it. All seats add and remove regions at the same point of the schedule. So they know
// the same regions when a batch begins.
class SharedRegions {
 public:
  struct Place {
    std::size_t region = 0;
    std::size_t offset = 0;  // distance from the beginning of a seat's part
  };

  // `memory` consists of `seats` parts of `part_bytes` each, ordered by seat.
  void add(const std::shared_ptr<void>& memory, std::size_t part_bytes, int me) {
    auto* base = static_cast<std::byte*>(memory.get());
    regions_.push_back({memory, base, base + part_bytes * static_cast<std::size_t>(me), part_bytes});
  }
  void remove(const void* my_part) {
    std::erase_if(regions_, [my_part](const Region& region) { return region.mine == my_part; });
  }
  bool empty() const { return regions_.empty(); }

  // Returns the place of a piece of this seat's memory. Returns nothing unless the whole piece is in one region.
  std::optional<Place> find(const void* memory, std::size_t bytes) const {
    auto address = reinterpret_cast<std::uintptr_t>(memory);
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      auto begin = reinterpret_cast<std::uintptr_t>(regions_[i].mine);
      if (address >= begin && address + bytes <= begin + regions_[i].part_bytes) return Place{i, address - begin};
    }
    return std::nullopt;
  }
  std::byte* at(Place place, int seat) const {
    const Region& region = regions_[place.region];
    return region.base + region.part_bytes * static_cast<std::size_t>(seat) + place.offset;
  }

 private:
  struct Region {
    std::shared_ptr<void> memory;
    std::byte* base;
    std::byte* mine;
    std::size_t part_bytes;
  };
  std::vector<Region> regions_;
};

}  // namespace hvd::transport::shm
