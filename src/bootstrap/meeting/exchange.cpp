#include "bootstrap/meeting/exchange.hpp"

#include <algorithm>

namespace hvd::bootstrap {

const char* const what_to_ask =
    ". Do they still run, are they before hvd.init(), or did they take another way? HOROVOD_START_TIMEOUT sets how "
    "long the others wait";

namespace {

// Returns the ranks that have not put a card, after a fence that timed out. What was put can be got although the fence
// has failed. Returns an empty text if the launcher does not even answer requests that need no other rank.
std::string absent_ranks(Bootstrap& bootstrap, const Identity& identity, std::string_view key) {
  constexpr auto answer_time = std::chrono::milliseconds(200);
  constexpr int most_named = 8;  // each absent rank costs one answer_time
  if (!bootstrap.get(identity.rank, key, Deadline::after(answer_time))) return {};
  std::string absent;
  int count = 0;
  for (int rank = 0; rank < identity.size; ++rank) {
    if (Rank{rank} == identity.rank || bootstrap.get(Rank{rank}, key, Deadline::after(answer_time))) continue;
    if (++count > most_named) return absent + " and maybe others";
    absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
  }
  return absent;
}

Status wait_for_all(Bootstrap& bootstrap, const Identity& identity, std::string_view key, Deadline deadline) {
  Status fenced = bootstrap.fence(deadline);
  if (fenced || fenced.error().code != ErrorCode::timeout) return fenced;
  if (std::string absent = absent_ranks(bootstrap, identity, key); !absent.empty())
    fenced.error().message += ". Of " + std::to_string(identity.size) + " ranks these did not come to the meeting by " +
                              bootstrap.name() + ": " + absent + what_to_ask;
  return fenced;
}

}  // namespace

Result<Cards> exchange(Bootstrap& bootstrap, const Identity& identity, std::string_view key, const Card& card,
                       Deadline deadline) {
  if (auto cards = bootstrap.exchange(key, card, deadline)) return std::move(*cards);
  Buffer mine = encode(card);
  HVD_RETURN_IF_ERROR(bootstrap.put(key, mine));
  HVD_RETURN_IF_ERROR(wait_for_all(bootstrap, identity, key, deadline));
  CardTable table(identity.size);
  for (int rank = 0; rank < identity.size; ++rank) {
    if (Rank{rank} == identity.rank) {
      table.add(identity.rank, decode_card(mine));
      continue;
    }
    auto theirs = bootstrap.get(Rank{rank}, key, deadline);
    if (!theirs) return std::move(theirs.error());
    table.add(Rank{rank}, decode_card(*theirs));
  }
  return Cards::decode(table.encode(), identity.size);
}

std::string who_is_absent(const std::vector<int>& ranks, int size) {
  constexpr std::size_t most_named = 8;
  std::string text =
      "Of " + std::to_string(size) + " ranks " + std::to_string(ranks.size()) + " did not come to the meeting: ";
  for (std::size_t i = 0; i < std::min(ranks.size(), most_named); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > most_named) text += " and " + std::to_string(ranks.size() - most_named) + " more";
  return text;
}

}  // namespace hvd::bootstrap
