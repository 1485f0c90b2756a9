#pragma once
// What the ranks of a job tell each other when they meet. Each rank has a card, which is a list of a few texts. All
// cards travel as one table. A text that many cards contain (a host's name, settings) is in the table only once.
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"

namespace hvd::bootstrap {

using Card = std::vector<std::string>;

// Encodes a card by itself, outside of a table. A malformed card decodes to the texts before the fault, and is marked
// as not whole.
Buffer encode(const Card& card);
struct CardView {
  std::vector<std::string_view> texts;
  bool is_whole = true;
};
CardView decode_card(ConstBytes bytes);

// Collects the cards of all ranks and encodes them as a table.
class CardTable {
 public:
  explicit CardTable(int ranks) : rows_(static_cast<std::size_t>(ranks)) {}
  CardTable(const CardTable&) = delete;
  CardTable& operator=(const CardTable&) = delete;
  void add(Rank rank, const CardView& card);
  Buffer encode() const;

 private:
  struct Row {
    std::vector<std::uint32_t> texts;
    bool is_whole = false;
  };
  std::vector<Row> rows_;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

// The cards of all ranks, decoded from a table.
class Cards {
 public:
  // Fails if `table` is not a table for this number of ranks.
  static Result<Cards> decode(Buffer table, int ranks);
  int size() const { return static_cast<int>(rows_.size()); }
  // The view is valid as long as this object.
  const CardView& of(Rank rank) const { return rows_[static_cast<std::size_t>(rank.value)]; }

 private:
  Buffer table_;
  std::vector<CardView> rows_;
};

}  // namespace hvd::bootstrap
