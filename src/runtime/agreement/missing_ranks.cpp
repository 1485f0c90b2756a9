#include "runtime/agreement/missing_ranks.hpp"

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
MissingRanks::Answer MissingRanks::take_answer(int child, int voter, const AnswerItem& answer) {
  if (answer.question != question_) return Answer::outdated;
  if (answer.missing.size() != missing_.size()) return Answer::broken;
  for (std::size_t i = 0; i < missing_.size(); ++i) {
    Missing& it = missing_[i];
    if (!it.name.name.empty() && ballots_.has_voted(voter, it.name)) continue;
    it.ranks.insert(it.ranks.end(), answer.missing[i].begin(), answer.missing[i].end());
  }
  is_silent_[static_cast<std::size_t>(child)] = false;
  return Answer::taken;
}

AnswerItem MissingRanks::answer() const {
  AnswerItem answer{question_, {}};
  for (const Missing& it : missing_) answer.missing.push_back(it.ranks);
  return answer;
}

}  // namespace hvd::runtime
