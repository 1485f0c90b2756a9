#include "transport/shm/in_place.hpp"

#include <algorithm>
#include <cstring>

namespace hvd::transport::shm {

std::uint64_t InPlace::locate(const Batch& batch, const SharedRegions& regions) {
  constexpr std::uint64_t prime = 1099511628211u;  // the prime of the hash FNV-1a
  std::uint64_t digest = 14695981039346656037u;
  parts_.clear();
  bytes_ = 0;
  for (const Piece& piece : batch.pieces()) {
    auto place = piece.in == piece.out ? regions.find(piece.out, piece.bytes) : std::nullopt;
    if (!place) return 0;
    parts_.push_back({bytes_, piece.bytes, *place});
    bytes_ += piece.bytes;
    for (std::uint64_t word : {std::uint64_t{place->region}, std::uint64_t{place->offset}, std::uint64_t{piece.bytes}})
      digest = (digest ^ word) * prime;
  }
  return digest == 0 ? 1 : digest;
}

void InPlace::begin(const SharedRegions& regions) {
  regions_ = &regions;
  sources_.resize(static_cast<std::size_t>(link_.size));
  copied_ = false;
  done_ = ++link_.slab_count;
  reduce_mine();
  link_.post.post(link_.area.seat(link_.me).flags->packed.value, done_);
}

bool InPlace::step(int& missing) {
  if (!copied_) {
    missing = link_.missing(&SeatFlags::packed, done_, 0);
    if (missing < link_.size) return false;
    copy_others();
    copied_ = true;
    link_.post.post(link_.area.seat(link_.me).flags->pushed.value, done_);
  }
  missing = link_.missing(&SeatFlags::pushed, done_, 0);
  return missing == link_.size;
}

std::size_t InPlace::slice_begin(int seat) const {
  auto size = static_cast<std::size_t>(link_.size);
  std::size_t each = ((bytes_ + size - 1) / size + 63) & ~std::size_t{63};
  return std::min(bytes_, each * static_cast<std::size_t>(seat));
}

// Calls visit(place, bytes) for the parts of a range of the batch.
template <typename Visit>
void InPlace::walk(std::size_t begin, std::size_t end, Visit visit) const {
  auto part = std::upper_bound(parts_.begin(), parts_.end(), begin,
                               [](std::size_t at, const Part& other) { return at < other.begin; });
  if (part != parts_.begin()) --part;
  for (; begin < end; ++part) {
    std::size_t offset = begin - part->begin;
    std::size_t bytes = std::min(part->bytes - offset, end - begin);
    visit(SharedRegions::Place{part->place.region, part->place.offset + offset}, bytes);
    begin += bytes;
  }
}

void InPlace::reduce_mine() {
  walk(slice_begin(link_.me), slice_begin(link_.me + 1), [&](SharedRegions::Place place, std::size_t bytes) {
    for (int seat = 0; seat < link_.size; ++seat) sources_[static_cast<std::size_t>(seat)] = regions_->at(place, seat);
    void* destination = regions_->at(place, link_.me);
    reduce_(sources_.data(), link_.size, &destination, 1, bytes);
  });
}

void InPlace::copy_others() {
  for (int step = 1; step < link_.size; ++step) {
    int seat = (link_.me + step) % link_.size;
    walk(slice_begin(seat), slice_begin(seat + 1), [&](SharedRegions::Place place, std::size_t bytes) {
      std::memcpy(regions_->at(place, link_.me), regions_->at(place, seat), bytes);
    });
  }
}

}  // namespace hvd::transport::shm
