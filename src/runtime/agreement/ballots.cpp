#include "runtime/agreement/ballots.hpp"

#include <utility>

#include "base/panic.hpp"

namespace hvd::runtime {

Ballots::Ballots(int voters) : voters_(static_cast<std::size_t>(voters)) {
  electorates_[global_process_set].assign(voters_, true);
}

int Ballots::count_missing(ProcessSetId set, const Votes& votes) const {
  const std::vector<bool>& electorate = electorates_.at(set);
  int missing = 0;
  for (std::size_t voter = 0; voter < voters_; ++voter) missing += electorate[voter] && !votes.voted[voter] ? 1 : 0;
  return missing;
}

std::vector<Poll> Ballots::set_electorate(ProcessSetId set, std::vector<bool> electorate) {
  electorates_[set] = std::move(electorate);
  std::vector<Poll> complete;
  for (auto it = polls_.begin(); it != polls_.end();) {
    auto& [name, votes] = *it;
    if (name.set == set) votes.missing = count_missing(set, votes);
    if (name.set != set || votes.missing > 0 || votes.opinions.empty()) {
      ++it;
      continue;
    }
    complete.push_back({name, std::move(votes.opinions)});
    it = polls_.erase(it);
  }
  return complete;
}

void Ballots::remove_electorate(ProcessSetId set) {
  close_all(set);
  electorates_.erase(set);
}

bool Ballots::open(OpNameView name) {
  if (is_open(name)) return false;
  Votes& votes = polls_[OpName(name)];
  votes.voted.resize(voters_);
  votes.missing = count_missing(name.set, votes);
  return true;
}

void Ballots::close(OpNameView name) {
  if (auto found = polls_.find(name); found != polls_.end()) polls_.erase(found);
}

void Ballots::close_all(ProcessSetId set) {
  std::erase_if(polls_, [set](const auto& poll) { return poll.first.set == set; });
}

bool Ballots::has_voted(int voter, OpNameView name) const {
  auto found = polls_.find(name);
  return found != polls_.end() && found->second.voted[static_cast<std::size_t>(voter)];
}

std::optional<Opinions> Ballots::vote(int voter, OpNameView name, Opinions opinions) {
  auto found = polls_.find(name);
  if (found == polls_.end()) panic("a vote for '" + std::string(name.name) + "', which nobody has opened");
  Votes& votes = found->second;
  auto place = static_cast<std::size_t>(voter);
  if (votes.voted[place]) panic("a rank voted twice for '" + std::string(name.name) + "'");
  votes.voted[place] = true;
  if (electorates_.at(name.set)[place]) --votes.missing;
  for (Opinion& it : opinions) {
    bool is_new = votes.opinions.empty() || !agree(votes.opinions.front().signature, it.signature);
    if (is_new && votes.opinions.size() < most_opinions) votes.opinions.push_back(std::move(it));
  }
  if (votes.missing > 0) return std::nullopt;
  Opinions all = std::move(votes.opinions);
  polls_.erase(found);
  return all;
}

std::vector<OpName> Ballots::names() const {
  std::vector<OpName> names;
  for (const auto& [name, votes] : polls_) names.push_back(name);
  return names;
}

std::vector<int> Ballots::missing(OpNameView name) const {
  std::vector<int> missing;
  auto electorate = electorates_.find(name.set);
  if (electorate == electorates_.end()) return missing;
  for (int voter = 0; voter < static_cast<int>(voters_); ++voter)
    if (electorate->second[static_cast<std::size_t>(voter)] && !has_voted(voter, name)) missing.push_back(voter);
  return missing;
}

}  // namespace hvd::runtime
