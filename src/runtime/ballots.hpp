#pragma once
// The ballots for names that have no slot, as far as one node knows them: those of its ranks one by one, those of a
// subtree of nodes as one. What is complete here is one ballot further up, however many ranks stand behind it.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "runtime/signature.hpp"

namespace hvd::runtime {

// What a rank submitted under a name.
struct Opinion {
  Rank rank;
  Signature signature;
};
// The opinions of many: one that all share, or two that differ (more would not make a mismatch clearer).
using Opinions = std::vector<Opinion>;
constexpr std::size_t most_opinions = 2;

class Ballots {
 public:
  explicit Ballots(int voters) : voters_(static_cast<std::size_t>(voters)) {}

  // Somebody has voted for the name, or will have. True if nobody had.
  bool open(std::string_view name);
  bool is_open(std::string_view name) const { return polls_.contains(name); }
  bool has_voted(int voter, std::string_view name) const;
  // The name is open and this voter has not voted. All opinions, once it was the last; the name is closed then.
  std::optional<Opinions> vote(int voter, std::string_view name, Opinions opinions);

  std::vector<std::string> names() const;  // that are open
  std::vector<int> missing(std::string_view name) const;

 private:
  struct Poll {
    std::vector<bool> voted;
    std::size_t votes = 0;
    Opinions opinions;
  };

  std::size_t voters_;
  std::map<std::string, Poll, std::less<>> polls_;
};

}  // namespace hvd::runtime
