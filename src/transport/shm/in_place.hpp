#pragma once
// An allreduce of tensors that lie in shared regions: nothing is packed.
//
//  1. Every seat says where its tensors of the batch lie (a digest of the places, in a small slot). Only if all say
//     the same is the batch reduced in place; a seat whose tensors have moved makes all of them pack.
//  2. Every seat reduces its slice of the batch, from all seats' memory into its own, in seat order; raises `packed`.
//  3. Once all have, it copies the other slices out of the memory of the seats that reduced them; raises `pushed`.
//  4. Once all have done that, nobody reads its tensors any more: done.
// Seats only ever read each other's tensors, so one that wakes up after the others gave up cannot harm them.
#include <cstdint>
#include <vector>

#include "transport/shm/batch.hpp"
#include "transport/shm/link_state.hpp"
#include "transport/shm/regions.hpp"
#include "transport/shm/tasks.hpp"

namespace hvd::transport::shm {

class InPlace {
 public:
  InPlace(LinkState& link, const Reduction& reduce) : link_(link), reduce_(reduce) {}

  // The digest of where the batch lies; 0 if it does not lie in regions.
  std::uint64_t locate(const Batch& batch, const SharedRegions& regions);
  // Call it when all digests were found equal.
  void begin(const SharedRegions& regions);
  // True when done; else `missing` is the seat that this one waits for.
  bool step(int& missing);

 private:
  struct Part {
    std::size_t begin, bytes;  // in the batch
    SharedRegions::Place place;
  };
  template <typename Visit>
  void walk(std::size_t begin, std::size_t end, Visit visit) const;
  std::size_t slice_begin(int seat) const;
  void reduce_mine();
  void copy_others();

  LinkState& link_;
  const Reduction& reduce_;
  const SharedRegions* regions_ = nullptr;
  std::vector<Part> parts_;
  std::vector<const void*> sources_;
  std::size_t bytes_ = 0;
  std::uint64_t done_ = 0;  // the value of the flags when this batch is
  bool copied_ = false;
};

}  // namespace hvd::transport::shm
