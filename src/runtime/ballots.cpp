#include "runtime/ballots.hpp"

#include "base/panic.hpp"

namespace hvd::runtime {

bool Ballots::open(std::string_view name) {
  if (is_open(name)) return false;
  polls_[std::string(name)].voted.resize(voters_);
  return true;
}

bool Ballots::has_voted(int voter, std::string_view name) const {
  auto found = polls_.find(name);
  return found != polls_.end() && found->second.voted[static_cast<std::size_t>(voter)];
}

std::optional<Opinions> Ballots::vote(int voter, std::string_view name, Opinions opinions) {
  auto found = polls_.find(name);
  if (found == polls_.end()) panic("a vote for '" + std::string(name) + "', which nobody has opened");
  Poll& poll = found->second;
  auto place = static_cast<std::size_t>(voter);
  if (poll.voted[place]) panic("a rank voted twice for '" + std::string(name) + "'");
  poll.voted[place] = true;
  ++poll.votes;
  for (Opinion& it : opinions) {
    bool is_new = poll.opinions.empty() || !agree(poll.opinions.front().signature, it.signature);
    if (is_new && poll.opinions.size() < most_opinions) poll.opinions.push_back(std::move(it));
  }
  if (poll.votes < voters_) return std::nullopt;
  Opinions all = std::move(poll.opinions);
  polls_.erase(found);
  return all;
}

std::vector<std::string> Ballots::names() const {
  std::vector<std::string> names;
  for (const auto& [name, poll] : polls_) names.push_back(name);
  return names;
}

std::vector<int> Ballots::missing(std::string_view name) const {
  auto found = polls_.find(name);
  std::vector<int> missing;
  for (int voter = 0; voter < static_cast<int>(voters_); ++voter)
    if (found == polls_.end() || !found->second.voted[static_cast<std::size_t>(voter)]) missing.push_back(voter);
  return missing;
}

}  // namespace hvd::runtime
