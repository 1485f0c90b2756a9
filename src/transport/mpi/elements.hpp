#pragma once
// A list of segments read as one long array of elements, any range of it at any time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/tensor_view.hpp"
#include "devices/host_kernels.hpp"

namespace hvd::transport::over_mpi {

// Keeps its memory between batches. Null data: zeros when read; when written, nobody wants them.
class Elements {
 public:
  void assign(std::span<const Segment> segments) {
    data_.clear();
    ends_.clear();
    for (const Segment& segment : segments) {
      if (segment.view.count == 0) continue;
      data_.push_back(static_cast<std::byte*>(segment.view.data));
      ends_.push_back(count() + segment.view.count);
    }
  }
  std::int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }

  // Copies a range to one place, or from there, and multiplies it on the way.
  void gather(std::int64_t begin, std::int64_t count, std::byte* to, DataType dtype, double factor) const {
    visit(begin, count, size_of(dtype), [&](std::byte* data, std::int64_t part) {
      std::size_t bytes = static_cast<std::size_t>(part) * size_of(dtype);
      if (data == nullptr) std::memset(to, 0, bytes);
      else copy(data, to, part, dtype, factor);
      to += bytes;
    });
  }
  void scatter(std::int64_t begin, std::int64_t count, const std::byte* from, DataType dtype, double factor) const {
    visit(begin, count, size_of(dtype), [&](std::byte* data, std::int64_t part) {
      if (data != nullptr) copy(from, data, part, dtype, factor);
      from += static_cast<std::size_t>(part) * size_of(dtype);
    });
  }

 private:
  static void copy(const std::byte* from, std::byte* to, std::int64_t count, DataType dtype, double factor) {
    if (factor == 1.0) {
      std::memmove(to, from, static_cast<std::size_t>(count) * size_of(dtype));
      return;
    }
    const void* source = from;
    void* destination = to;
    devices::reduce_kernel(dtype, ReduceOp::sum)(&source, 1, &destination, 1, count, {factor, 1.0});
  }

  template <typename Visit>
  void visit(std::int64_t begin, std::int64_t count, std::size_t element_bytes, Visit visit_piece) const {
    auto index = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (; count > 0; ++index) {
      std::int64_t start = index == 0 ? 0 : ends_[index - 1];
      std::int64_t part = std::min(count, ends_[index] - begin);
      std::byte* data = data_[index];
      visit_piece(data == nullptr ? nullptr : data + static_cast<std::size_t>(begin - start) * element_bytes, part);
      begin += part;
      count -= part;
    }
  }

  std::vector<std::int64_t> ends_;  // of every segment, in elements of the whole
  std::vector<std::byte*> data_;
};

}  // namespace hvd::transport::over_mpi
