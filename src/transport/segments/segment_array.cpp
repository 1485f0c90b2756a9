#include "transport/segments/segment_array.hpp"

#include <algorithm>
#include <cstring>

namespace hvd::transport {

void SegmentArray::assign(std::span<const Segment> segments, DataType dtype) {
  ends_.clear();
  data_.clear();
  dtype_ = dtype;
  element_bytes_ = size_of(dtype);
  std::int64_t end = 0;
  for (const Segment& segment : segments) {
    if (segment.view.count == 0) continue;
    end += segment.view.count;
    ends_.push_back(end);
    data_.push_back(static_cast<std::byte*>(segment.view.data));
  }
}

std::size_t SegmentArray::index_of(std::int64_t position) const {
  return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), position) - ends_.begin());
}

std::byte* SegmentArray::contiguous(std::int64_t begin, std::int64_t range) const {
  if (range == 0 || begin + range > count()) return nullptr;
  std::size_t index = index_of(begin);
  if (data_[index] == nullptr || begin + range > ends_[index]) return nullptr;
  std::int64_t start = index == 0 ? 0 : ends_[index - 1];
  return data_[index] + static_cast<std::size_t>(begin - start) * element_bytes_;
}

void SegmentArray::gather(std::int64_t begin, std::int64_t range, std::byte* to) const {
  visit(begin, range, [&](const std::byte* data, std::int64_t part) {
    std::size_t bytes = static_cast<std::size_t>(part) * element_bytes_;
    if (data == nullptr) std::memset(to, 0, bytes);
    else if (data != to) std::memcpy(to, data, bytes);
    to += bytes;
  });
}

void SegmentArray::gather_scaled(std::int64_t begin, std::int64_t range, std::byte* to, devices::ReduceKernel kernel,
                                 devices::Scale scale) const {
  if (scale.pre == 1.0 && scale.post == 1.0) return gather(begin, range, to);
  visit(begin, range, [&](const std::byte* data, std::int64_t part) {
    std::size_t bytes = static_cast<std::size_t>(part) * element_bytes_;
    if (data == nullptr) std::memset(to, 0, bytes);
    const void* source = data == nullptr ? to : data;
    void* destination = to;
    kernel(&source, 1, &destination, 1, part, scale);
    to += bytes;
  });
}

void SegmentArray::scatter(std::int64_t begin, std::int64_t range, const std::byte* from) const {
  visit(begin, range, [&](std::byte* data, std::int64_t part) {
    std::size_t bytes = static_cast<std::size_t>(part) * element_bytes_;
    if (data != nullptr && data != from) std::memcpy(data, from, bytes);
    from += bytes;
  });
}

void SegmentArray::scatter_scaled(std::int64_t begin, std::int64_t range, const std::byte* from,
                                  devices::ReduceKernel kernel, devices::Scale scale) const {
  if (scale.pre == 1.0 && scale.post == 1.0) return scatter(begin, range, from);
  visit(begin, range, [&](std::byte* data, std::int64_t part) {
    const void* source = from;
    void* destination = data;
    if (data != nullptr) kernel(&source, 1, &destination, 1, part, scale);
    from += static_cast<std::size_t>(part) * element_bytes_;
  });
}

void SegmentArray::append_range(std::int64_t begin, std::int64_t range, std::vector<Segment>& to) const {
  visit(begin, range, [&](std::byte* data, std::int64_t part) { to.push_back({TensorView{data, part, dtype_}}); });
}

}  // namespace hvd::transport
