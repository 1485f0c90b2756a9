#include "runtime/missing_ranks.hpp"

#include <utility>

namespace hvd::runtime {

void MissingRanks::ask(std::uint32_t question, std::vector<Missing> here) {
  question_ = question;
  missing_ = std::move(here);
  is_silent_.assign(is_silent_.size(), true);
}

std::vector<int> MissingRanks::silent_children() const {
  std::vector<int> silent;
  for (std::size_t child = 0; child < is_silent_.size(); ++child)
    if (is_silent_[child]) silent.push_back(static_cast<int>(child));
  return silent;
}

std::vector<Missing> MissingRanks::known() const {
  std::vector<Missing> known = missing_;
  std::erase_if(known, [this](const Missing& it) { return !it.name.name.empty() && !ballots_.is_open(it.name); });
  return known;
}

// If the child has voted for a name meanwhile, none of its ranks is missing. The child forgets a name after it voted
// and then reports all of its ranks, so that part of the answer is ignored.
MissingRanks::Answer MissingRanks::take_answer(int child, int voter, ByteReader& frame) {
  bool is_current = frame.get<std::uint32_t>() == question_;
  auto count = frame.get<std::uint32_t>();
  if (is_current && count != missing_.size()) return Answer::broken;
  for (std::uint32_t i = 0; i < count && frame.ok(); ++i) {
    auto ranks = frame.get<std::uint32_t>();
    bool counts = is_current && (missing_[i].name.name.empty() || !ballots_.has_voted(voter, missing_[i].name));
    for (std::uint32_t k = 0; k < ranks && frame.ok(); ++k) {
      auto rank = frame.get<Rank>();
      if (counts && frame.ok()) missing_[i].ranks.push_back(rank);
    }
  }
  if (!is_current || !frame.ok()) return Answer::outdated;
  is_silent_[static_cast<std::size_t>(child)] = false;
  return Answer::taken;
}

void MissingRanks::write_answer(ByteWriter& writer) const {
  writer.put(question_);
  writer.put(static_cast<std::uint32_t>(missing_.size()));
  for (const Missing& it : missing_) {
    writer.put(static_cast<std::uint32_t>(it.ranks.size()));
    for (Rank rank : it.ranks) writer.put(rank);
  }
}

}  // namespace hvd::runtime
