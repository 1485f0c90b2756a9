#pragma once
// Treats a list of segments as one long array of bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/tensor_view.hpp"

namespace hvd::transport::shm {

// One segment of a batch. A null `in` means zeros. A null `out` means that the result is not needed. In a plain list
// `in` and `out` are equal.
struct Piece {
  std::byte* in;
  std::byte* out;
  std::size_t bytes;
};

// The object keeps its memory between batches. Empty segments are left out.
class Batch {
 public:
  void assign(std::span<const Segment> segments) { assign_both(segments, segments); }
  // Panics unless both lists have the same lengths, segment by segment.
  void assign_both(std::span<const Segment> in, std::span<const Segment> out);

  const std::vector<Piece>& pieces() const { return pieces_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
};

// A position in a batch that moves forward.
class Cursor {
 public:
  Cursor() = default;
  explicit Cursor(const Batch& batch) : piece_(batch.pieces().data()) {}

  // Calls visit(in, out, bytes) for the parts of the next `bytes` bytes, and moves past them.
  template <typename Visit>
  void walk(std::size_t bytes, Visit visit) {
    while (bytes > 0) {
      std::size_t part = std::min(bytes, piece_->bytes - offset_);
      visit(piece_->in == nullptr ? nullptr : piece_->in + offset_,
            piece_->out == nullptr ? nullptr : piece_->out + offset_, part);
      bytes -= part;
      advance(part);
    }
  }
  void skip(std::size_t bytes) {
    while (bytes > 0) {
      std::size_t part = std::min(bytes, piece_->bytes - offset_);
      bytes -= part;
      advance(part);
    }
  }
  // Copies the next bytes of `in` to contiguous memory.
  void gather(std::byte* to, std::size_t bytes) {
    walk(bytes, [&to](const std::byte* in, std::byte*, std::size_t part) {
      if (in != nullptr) std::memcpy(to, in, part);
      else std::memset(to, 0, part);
      to += part;
    });
  }
  // Like gather(), but its stores bypass the caches: see LinkState::publishes_past_caches.
  void gather_streaming(std::byte* to, std::size_t bytes);
  // Copies from contiguous memory to the next bytes of `out`.
  void scatter(const std::byte* from, std::size_t bytes) {
    walk(bytes, [&from](const std::byte*, std::byte* out, std::size_t part) {
      if (out != nullptr) std::memcpy(out, from, part);
      from += part;
    });
  }
  // Like scatter(), but its stores bypass the caches, for results that do not fit into them.
  void scatter_streaming(const std::byte* from, std::size_t bytes);

 private:
  void advance(std::size_t part) {
    offset_ += part;
    if (offset_ == piece_->bytes) {
      ++piece_;
      offset_ = 0;
    }
  }

  const Piece* piece_ = nullptr;
  std::size_t offset_ = 0;
};

}  // namespace hvd::transport::shm
