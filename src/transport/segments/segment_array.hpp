#pragma once
// Treats a list of segments as one array of elements.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/data_type.hpp"
#include "base/tensor_view.hpp"
#include "devices/host/host_kernels.hpp"

namespace hvd::transport {

// The object keeps its memory between batches. Ranges are in elements. If the data of a segment are null, reading gives
// zeros and writing does nothing.
class SegmentArray {
 public:
  void assign(std::span<const Segment> segments, DataType dtype);

  std::int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  bool is_same_memory_as(const SegmentArray& other) const { return ends_ == other.ends_ && data_ == other.data_; }
  // Returns the address of the range if it is in one piece of memory, else null.
  std::byte* contiguous(std::int64_t begin, std::int64_t count) const;
  // Copies the range to contiguous memory, or from there. A piece that is already at its destination is not copied.
  void gather(std::int64_t begin, std::int64_t count, std::byte* to) const;
  // Like gather() and scatter(), but every element is multiplied by both factors. `kernel` is any kernel of the type.
  void gather_scaled(std::int64_t begin, std::int64_t count, std::byte* to, devices::ReduceKernel kernel,
                     devices::Scale scale) const;
  void scatter(std::int64_t begin, std::int64_t count, const std::byte* from) const;
  void scatter_scaled(std::int64_t begin, std::int64_t count, const std::byte* from, devices::ReduceKernel kernel,
                      devices::Scale scale) const;
  // Appends the segments of the range to `to`.
  void append_range(std::int64_t begin, std::int64_t count, std::vector<Segment>& to) const;

  // Calls visit(data or null, elements) for the pieces of the range, in order.
  template <typename Visit>
  void visit(std::int64_t begin, std::int64_t count, Visit visit_piece) const {
    if (count == 0) return;
    for (std::size_t index = index_of(begin); count > 0; ++index) {
      std::int64_t start = index == 0 ? 0 : ends_[index - 1];
      std::int64_t part = std::min(count, ends_[index] - begin);
      std::byte* data = data_[index];
      visit_piece(data == nullptr ? nullptr : data + static_cast<std::size_t>(begin - start) * element_bytes_, part);
      begin += part;
      count -= part;
    }
  }

 private:
  std::size_t index_of(std::int64_t position) const;

  // These lists leave out empty segments.
  std::vector<std::int64_t> ends_;  // where each segment ends, in elements from the beginning of the array
  std::vector<std::byte*> data_;
  std::size_t element_bytes_ = 1;
  DataType dtype_ = DataType::u8;
};

}  // namespace hvd::transport
