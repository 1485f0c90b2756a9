#pragma once
// Memory for tensors that all seats of a node have mapped, so that what lies in it is reduced where it is. One region
// holds an equal part for every seat; a tensor at the same place of all parts needs no packing.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace hvd::transport::shm {

// Belongs to the engine's thread. All seats add and remove regions at the same point of the schedule, so they agree
// about what is shared when a batch begins.
class SharedRegions {
 public:
  struct Place {
    std::size_t region = 0;
    std::size_t offset = 0;  // in a seat's part
  };

  // `memory` holds `seats` parts of `part_bytes` each, by seat.
  void add(const std::shared_ptr<void>& memory, std::size_t part_bytes, int me) {
    auto* base = static_cast<std::byte*>(memory.get());
    regions_.push_back({memory, base, base + part_bytes * static_cast<std::size_t>(me), part_bytes});
  }
  void remove(const void* my_part) {
    std::erase_if(regions_, [my_part](const Region& region) { return region.mine == my_part; });
  }
  bool empty() const { return regions_.empty(); }

  // Where a piece of my memory lies; nothing unless all of it is in one region.
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
