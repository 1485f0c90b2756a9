#pragma once
// An allreduce of tensors that are in shared regions. Nothing is packed.
//
//  1. Every seat tells where its tensors of the batch are: a digest of their places, in a small slot. Only if all
//     digests are equal is the batch reduced in place. If one seat's tensors have moved, all seats pack.
//  2. Every seat reduces its slice of the batch in seat order, from the memory of all seats into its own memory. Then
//     it raises `packed`.
//  3. When all seats have done step 2, it copies each other slice from the memory of the seat that reduced it. Then it
//     raises `pushed`.
//  4. When all seats have done step 3, no seat reads another's tensors any more, and the task is done.
// Seats only read the tensors of others. So a seat that continues after the others have given up cannot harm them.
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

  // Returns the digest of the batch's places; 0 if the batch is not in regions.
  std::uint64_t locate(const Batch& batch, const SharedRegions& regions);
  // Begins the reduction. Called when all digests were found equal.
  void begin(const SharedRegions& regions);
  // Returns true when the reduction is done. Otherwise `missing` is the seat that this seat waits for.
  bool step(int& missing);

 private:
  struct Part {
    std::size_t begin, bytes;  // a range of the batch
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
  std::uint64_t done_ = 0;  // the value that the flags have when this batch is done
  bool copied_ = false;
};

}  // namespace hvd::transport::shm
