#pragma once
// The ballots for names that have no slot, as far as one node knows them. Each rank of the node votes by itself, a
// subtree of nodes has one vote. When all have voted, one ballot for all of them goes up.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "runtime/operations/op_name.hpp"
#include "runtime/operations/signature.hpp"

namespace hvd::runtime {

// A rank and the signature that it submitted under a name.
struct Opinion {
  Rank rank;
  Signature signature;
};
// The opinions of several ranks: one if all are equal, else two that differ. A third would not make a mismatch clearer.
using Opinions = std::vector<Opinion>;
constexpr std::size_t most_opinions = 2;

struct Poll {
  OpName name;
  Opinions opinions;
};

class Ballots {
 public:
  // All `voters` may vote in the world's set.
  explicit Ballots(int voters);

  // Sets who votes in this set from now on. A poll is open when at least one ballot for its name was sent. Returns the
  // polls that the change makes complete, and closes them.
  std::vector<Poll> set_electorate(ProcessSetId set, std::vector<bool> electorate);
  void remove_electorate(ProcessSetId set);
  bool knows(ProcessSetId set) const { return electorates_.contains(set); }

  // Opens a poll for the name: somebody has voted or is about to vote. Returns true if the poll was not open before.
  bool open(OpNameView name);
  bool is_open(OpNameView name) const { return polls_.contains(name); }
  void close(OpNameView name);
  void close_all(ProcessSetId set);
  bool has_voted(int voter, OpNameView name) const;
  // Takes a vote. The name must be open, and this voter must not have voted yet. After the last vote returns all
  // opinions and closes the name.
  std::optional<Opinions> vote(int voter, OpNameView name, Opinions opinions);

  std::vector<OpName> names() const;  // returns the names that are being voted on
  std::vector<int> missing(OpNameView name) const;

 private:
  struct Votes {
    std::vector<bool> voted;
    int missing = 0;  // how many voters have not voted yet
    Opinions opinions;
  };
  using Polls = std::map<OpName, Votes, OrderOfNames>;

  int count_missing(ProcessSetId set, const Votes& votes) const;

  std::size_t voters_;
  std::map<ProcessSetId, std::vector<bool>> electorates_;  // for each process set: which of the voters may vote
  Polls polls_;
};

}  // namespace hvd::runtime
