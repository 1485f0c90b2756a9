#include "transport/nccl/card.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace hvd::transport::over_nccl {

namespace {

constexpr std::int32_t nccl_with_nvls_mode = 23100;

std::string text_of(std::int32_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

Buffer Card::encode() const {
  Buffer bytes;
  ByteWriter out(bytes);
  for (const std::string* text : {&refusal, &machine, &gpu, &uuid, &id}) out.put_string(*text);
  out.put(version);
  out.put(shares_gpu);
  out.put(sets_nvls);
  out.put(buffer_bytes);
  return bytes;
}

Result<Card> Card::decode(ConstBytes bytes) {
  Card card;
  ByteReader in(bytes);
  for (std::string* text : {&card.refusal, &card.machine, &card.gpu, &card.uuid, &card.id}) *text = in.get_string();
  card.version = in.get<std::int32_t>();
  card.shares_gpu = in.get<bool>();
  card.sets_nvls = in.get<bool>();
  card.buffer_bytes = in.get<std::int64_t>();
  if (!in.ok() || !in.at_end()) return Error(ErrorCode::mismatch, "what a rank told about its NCCL came damaged");
  return card;
}

bool is_part_of_its_nodes(const World& world, const Group& group) {
  std::map<std::string_view, int> left_out;
  for (const Rank rank : group.ranks) --left_out[world.member(rank).node];
  for (const Member& member : world.members)
    if (const auto node = left_out.find(member.node); node != left_out.end()) ++node->second;
  return std::ranges::all_of(left_out, [](const auto& node) { return node.second > 0; });
}

Agreement agree(const World& world, const Group& group, std::span<const Card> cards) {
  Agreement agreement;
  const auto who = [&](std::size_t seat) {
    return describe(world, group.rank_at(Seat{static_cast<std::int32_t>(seat)}));
  };
  std::map<std::pair<std::string, std::string>, std::size_t> seats;
  agreement.buffer_bytes = cards.front().buffer_bytes;
  agreement.without_nvls = cards.front().version >= nccl_with_nvls_mode && is_part_of_its_nodes(world, group) &&
                           std::ranges::none_of(cards, [](const Card& card) { return card.sets_nvls; });
  for (std::size_t seat = 0; seat < cards.size(); ++seat) {
    const Card& card = cards[seat];
    if (!card.id.empty()) agreement.ids.push_back(card.id);
    agreement.buffer_bytes = std::min(agreement.buffer_bytes, card.buffer_bytes);
    if (!card.refusal.empty()) {
      agreement.refusal = who(seat) + ": " + card.refusal;
      return agreement;
    }
    if (card.version != cards.front().version) {
      agreement.refusal = "all ranks need the same version, found " + text_of(cards.front().version) + " on " + who(0) +
                          " and " + text_of(card.version) + " on " + who(seat);
      return agreement;
    }
    const auto [other, is_first] = seats.try_emplace({card.machine, card.gpu}, seat);
    if (is_first || card.shares_gpu) continue;
    const std::string both = who(other->second) + " and " + who(seat);
    const std::string& others = cards[other->second].uuid;
    agreement.refusal = card.uuid == others
                            ? both + " are on one GPU (" + card.uuid +
                                  "), which NCCL does not allow: start at most one rank for each GPU, or set "
                                  "NCCL_MULTI_RANK_GPU_ENABLE=1 with NCCL 2.30 or later"
                            : both + " are on parts of one GPU (" + others + " and " + card.uuid + " at " + card.gpu +
                                  "), which NCCL does not allow: start at most one rank for each GPU";
    return agreement;
  }
  return agreement;
}

}  // namespace hvd::transport::over_nccl
