#pragma once
// The ballots for names that have no slot, as far as one node knows them: those of its own ranks one by one, those of a
// subtree of nodes as one. When all are here, they go up as one ballot, however many ranks stand behind it.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "runtime/op_name.hpp"
#include "runtime/signature.hpp"

namespace hvd::runtime {

// What a rank submitted under a name.
struct Opinion {
  Rank rank;
  Signature signature;
};
// The opinions of many ranks: one that all share, or two that differ (a third would not make a mismatch clearer).
using Opinions = std::vector<Opinion>;
constexpr std::size_t most_opinions = 2;

struct Poll {
  OpName name;
  Opinions opinions;
};

class Ballots {
 public:
  // All of them vote in the world.
  explicit Ballots(int voters);

  // Sets who votes in this set from now on. Returns the polls that are complete as a result, and closes them; a poll is
  // open once somebody has voted.
  std::vector<Poll> set_electorate(ProcessSetId set, std::vector<bool> electorate);
  void remove_electorate(ProcessSetId set);
  bool knows(ProcessSetId set) const { return electorates_.contains(set); }

  // Somebody has voted for the name, or will have. True if nobody had before.
  bool open(OpNameView name);
  bool is_open(OpNameView name) const { return polls_.contains(name); }
  void close(OpNameView name);
  void close_all(ProcessSetId set);
  bool has_voted(int voter, OpNameView name) const;
  // A vote; the name must be open, and this voter must not have voted. Returns all opinions if it was the last vote,
  // and closes the name.
  std::optional<Opinions> vote(int voter, OpNameView name, Opinions opinions);

  std::vector<OpName> names() const;  // that are open
  std::vector<int> missing(OpNameView name) const;

 private:
  struct Votes {
    std::vector<bool> voted;
    int missing = 0;  // of those who have to vote
    Opinions opinions;
  };
  using Polls = std::map<OpName, Votes, OrderOfNames>;

  int count_missing(ProcessSetId set, const Votes& votes) const;

  std::size_t voters_;
  std::map<ProcessSetId, std::vector<bool>> electorates_;  // by voter
  Polls polls_;
};

}  // namespace hvd::runtime
