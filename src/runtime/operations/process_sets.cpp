#include "runtime/operations/process_sets.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace hvd::runtime {

ProcessSets::ProcessSets(int world_size) {
  ProcessSet& world = sets_[global_process_set];
  world.ranks.reserve(static_cast<std::size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) world.ranks.emplace_back(rank);
}

const ProcessSet* ProcessSets::find(ProcessSetId id) const {
  auto found = sets_.find(id);
  return found == sets_.end() ? nullptr : &found->second;
}

const ProcessSet* ProcessSets::numbered(int number) const {
  for (const auto& [id, set] : sets_)
    if (set.number == number) return &set;
  return nullptr;
}

const ProcessSet* ProcessSets::of(std::span<const Rank> ranks) const {
  for (const auto& [id, set] : sets_)
    if (std::ranges::equal(set.ranks, ranks)) return &set;
  return nullptr;
}

const ProcessSet& ProcessSets::add(std::vector<Rank> ranks) {
  ProcessSet set;
  set.id = ProcessSetId{next_id_++};
  set.ranks = std::move(ranks);
  if (free_numbers_.empty()) {
    set.number = next_number_++;
  } else {
    set.number = free_numbers_.front();
    free_numbers_.pop_front();
  }
  return sets_.emplace(set.id, std::move(set)).first->second;
}

void ProcessSets::remove(ProcessSetId id) {
  auto found = sets_.find(id);
  if (found == sets_.end()) return;
  free_numbers_.push_back(found->second.number);
  sets_.erase(found);
}

std::string describe(const ProcessSet& set) {
  return "process set " + std::to_string(set.number) + " (ranks " + describe(set.ranks) + ")";
}

std::string describe(std::span<const Rank> ranks) {
  constexpr std::size_t most = 16;
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < most; ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i].value);
  return text + (ranks.size() > most ? ", …" : "");
}

namespace {
constexpr std::size_t bits_per_number = 64;
}

std::vector<std::int64_t> bits_of(std::span<const Rank> ranks) {
  std::vector<std::int64_t> bits;
  for (Rank rank : ranks) {
    const auto place = static_cast<std::size_t>(rank.value);
    if (place / bits_per_number >= bits.size()) bits.resize(place / bits_per_number + 1);
    bits[place / bits_per_number] |= static_cast<std::int64_t>(std::uint64_t{1} << place % bits_per_number);
  }
  return bits;
}

std::vector<Rank> ranks_in(std::span<const std::int64_t> bits) {
  std::vector<Rank> ranks;
  for (std::size_t number = 0; number < bits.size(); ++number)
    for (auto left = static_cast<std::uint64_t>(bits[number]); left != 0; left &= left - 1)
      ranks.emplace_back(static_cast<std::int32_t>(number * bits_per_number) + std::countr_zero(left));
  return ranks;
}

}  // namespace hvd::runtime
