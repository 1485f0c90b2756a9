#pragma once
// The answer of a subtree of nodes to the question which ranks are missing (agreement.hpp, 7), as far as it is known.
#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "runtime/agreement/agreement_frames.hpp"
#include "runtime/agreement/ballots.hpp"
#include "runtime/operations/op_name.hpp"

namespace hvd::runtime {

// The ranks that have not arrived at a slot. If `name` is not empty: the ranks that have not voted for this name.
struct Missing {
  SlotId slot{-1};
  OpName name;  // empty if the entry is about the slot
  std::vector<Rank> ranks;
};

class MissingRanks {
 public:
  MissingRanks(const Ballots& ballots, int children)
      : ballots_(ballots), is_silent_(static_cast<std::size_t>(children)) {}

  // A new question, with the ranks of this node that are missing. All children have to answer it.
  void ask(std::uint32_t question, std::vector<Missing> here);
  std::uint32_t question() const { return question_; }

  enum class Answer : std::uint8_t { broken, outdated, taken };
  // Takes the answer of a child, which votes as `voter`. The answer to an older question is outdated.
  Answer take_answer(int child, int voter, const AnswerItem& answer);
  AnswerItem answer() const;

  // The children that have not answered the question, and the missing ranks that the others have reported.
  std::vector<int> silent_children() const;
  std::vector<Missing> known() const;

 private:
  const Ballots& ballots_;
  std::uint32_t question_ = 0;
  std::vector<Missing> missing_;
  std::vector<bool> is_silent_;  // by child: has not yet answered the question
};

}  // namespace hvd::runtime
