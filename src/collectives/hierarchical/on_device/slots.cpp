#include "collectives/hierarchical/on_device/slots.hpp"

namespace hvd::collectives::hierarchical {

std::shared_ptr<Slots> Slots::of(Team& team) {
  if (team.slots == nullptr) team.slots = std::make_shared<Slots>(team);
  return std::static_pointer_cast<Slots>(team.slots);
}

Slots::Slots(const Team& team) : device_(*team.device), rails_(static_cast<std::size_t>(team.rails)) {
  for (auto& stream : streams_) {
    auto made = device_.stream();
    if (made) stream = std::move(*made);
    else failure_ = made.error();
  }
}

// Memory is given back in the order of the stream that unpacks, which therefore ends last.
Slots::~Slots() {
  finish();
  ways_ = {};
  packed_ = {};
  unpacked_ = {};
  if (streams_[4]) devices::finish(device_, unpack());
}

void Slots::gather_streams() {
  for (const auto& stream : streams_)
    if (auto end = device_.record({stream.get()}); end && stream != streams_[4])
      static_cast<void>(device_.wait(unpack(), *end));
}

// The streams end at the same time, so one of them waits for all.
void Slots::finish() {
  if (failure_) return;
  gather_streams();
  devices::finish(device_, unpack());
}

Status Slots::reserve(std::size_t share_bytes, bool is_over_host) {
  if (is_over_host && share_bytes > host_bytes_) {
    for (Way& way : ways_) HVD_RETURN_IF_ERROR(allocate(way.on_host, share_bytes, devices::Where::on_host));
    host_bytes_ = share_bytes;
  }
  if (share_bytes <= share_bytes_) return {};
  for (Way& way : ways_) HVD_RETURN_IF_ERROR(allocate(way.share, share_bytes, devices::Where::on_device));
  // A rank alone on its node packs into its share at once.
  for (auto* list : {&packed_, &unpacked_})
    for (Packed& packed : *list)
      if (rails_ > 1) HVD_RETURN_IF_ERROR(allocate(packed.memory, share_bytes * rails_, devices::Where::on_device));
  share_bytes_ = share_bytes;
  return {};
}

Status Slots::allocate(devices::Memory& memory, std::size_t bytes, devices::Where where) {
  memory = {};
  auto allocated = device_.allocate(bytes, where, unpack());
  if (!allocated) return allocated.error();
  memory = std::move(*allocated);
  return {};
}

}  // namespace hvd::collectives::hierarchical
