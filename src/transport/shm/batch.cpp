#include "transport/shm/batch.hpp"

#include "base/panic.hpp"
#include "devices/host/host_kernels.hpp"

namespace hvd::transport::shm {

void Batch::assign_both(std::span<const Segment> in, std::span<const Segment> out) {
  if (in.size() != out.size()) panic("a collective got different numbers of input and output segments");
  pieces_.clear();
  bytes_ = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    std::size_t bytes = in[i].view.bytes();
    if (bytes != out[i].view.bytes()) panic("an input segment and its output segment differ in length");
    if (bytes == 0) continue;
    pieces_.push_back({static_cast<std::byte*>(in[i].view.data), static_cast<std::byte*>(out[i].view.data), bytes});
    bytes_ += bytes;
  }
}

void Cursor::gather_streaming(std::byte* to, std::size_t bytes) {
  walk(bytes, [&to](const std::byte* in, std::byte*, std::size_t part) {
    if (in != nullptr) devices::copy_streaming(to, in, part);
    else std::memset(to, 0, part);
    to += part;
  });
}

void Cursor::scatter_streaming(const std::byte* from, std::size_t bytes) {
  walk(bytes, [&from](const std::byte*, std::byte* out, std::size_t part) {
    if (out != nullptr) devices::copy_streaming(out, from, part);
    from += part;
  });
}

}  // namespace hvd::transport::shm
