#include "connections/device_peers.hpp"

#include <algorithm>

#include "base/bytes.hpp"

namespace hvd::connections {

std::string DeviceCard::encode() const {
  Buffer bytes;
  ByteWriter out(bytes);
  out.put_string(mask.to_string());
  out.put(static_cast<std::uint32_t>(gpus.size()));
  for (const VisibleGpu& gpu : gpus)
    for (const std::string* text : {&gpu.bus_id, &gpu.uuid, &gpu.model}) out.put_string(*text);
  out.put(static_cast<std::uint32_t>(kinds.size()));
  for (const std::string& kind : kinds) out.put_string(kind);
  out.put(slot);
  return to_string(bytes);
}

Result<DeviceCard> DeviceCard::decode(std::string_view text) {
  DeviceCard card;
  ByteReader in(as_bytes(text));
  auto mask = posix::CpuMask::parse(in.get_string());
  for (auto left = in.get<std::uint32_t>(); left > 0 && in.ok(); --left) {
    VisibleGpu gpu;
    for (std::string* part : {&gpu.bus_id, &gpu.uuid, &gpu.model}) *part = in.get_string();
    card.gpus.push_back(std::move(gpu));
  }
  for (auto left = in.get<std::uint32_t>(); left > 0 && in.ok(); --left) card.kinds.emplace_back(in.get_string());
  card.slot = in.get<std::int32_t>();
  if (!mask || !in.ok() || !in.at_end())
    return Error(ErrorCode::mismatch, "what a rank told about its devices came damaged");
  card.mask = std::move(*mask);
  return card;
}

Result<DevicePeers> DevicePeers::of(const World& world) {
  DevicePeers peers;
  auto has_told = [](const Member& member) { return !member.devices.empty(); };
  if (std::ranges::none_of(world.members, has_told)) return peers;
  peers.cards_.resize(world.members.size());
  for (int rank = 0; rank < world.size(); ++rank) {
    const Member& member = world.member(Rank{rank});
    if (!has_told(member)) continue;
    auto card = DeviceCard::decode(member.devices);
    if (!card) {
      card.error().message = describe(world, Rank{rank}) + ": " + card.error().message;
      return std::move(card.error());
    }
    peers.cards_[static_cast<std::size_t>(rank)] = std::move(*card);
  }
  return peers;
}

Rank DevicePeers::first_without(std::span<const Rank> ranks, std::string_view kind) const {
  if (cards_.empty()) return Rank{-1};
  for (Rank rank : ranks) {
    const DeviceCard* card = card_of(rank);
    if (card == nullptr || std::ranges::find(card->kinds, kind) == card->kinds.end()) return rank;
  }
  return Rank{-1};
}

}  // namespace hvd::connections
