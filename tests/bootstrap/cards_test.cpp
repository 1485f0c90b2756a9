#include "bootstrap/meeting/cards.hpp"

#include <gtest/gtest.h>

#include <random>

namespace hvd::bootstrap {
namespace {

Buffer table_of(const std::vector<Card>& cards) {
  CardTable table(static_cast<int>(cards.size()));
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    Buffer bytes = encode(cards[rank]);
    table.add(Rank{static_cast<int>(rank)}, decode_card(bytes));
  }
  return table.encode();
}

TEST(Cards, come_out_of_the_table_as_they_went_in) {
  std::vector<Card> cards = {{}, {""}, {"a", "b", "a"}, {std::string(300, 'x')}, {std::string("\0\xff", 2), "b"}};
  for (int i = 0; i < 400; ++i) cards.push_back({"the same", std::to_string(i)});
  auto read = Cards::decode(table_of(cards), static_cast<int>(cards.size()));
  ASSERT_TRUE(read) << read.error().message;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const CardView& card = read->of(Rank{static_cast<int>(rank)});
    EXPECT_TRUE(card.is_whole);
    EXPECT_EQ(Card(card.texts.begin(), card.texts.end()), cards[rank]) << rank;
  }
}

TEST(Cards, that_are_alike_cost_a_few_bytes_each) {
  std::vector<Card> cards(1000, {std::string(1000, 'k'), "release"});
  EXPECT_LT(table_of(cards).size(), 1000u + 1000 * 4);
}

TEST(Cards, that_are_not_whole_are_marked_so) {
  Buffer bytes = encode({"one", "two"});
  bytes.pop_back();
  CardTable table(1);
  table.add(Rank{0}, decode_card(bytes));
  auto read = Cards::decode(table.encode(), 1);
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->of(Rank{0}).is_whole);
  EXPECT_EQ(read->of(Rank{0}).texts, std::vector<std::string_view>{"one"});
}

TEST(Cards, of_a_damaged_table_are_refused_and_nothing_is_read_beyond_it) {
  Buffer good = table_of({{"a", "b"}, {"b", "c"}, {std::string(200, 'x')}});
  EXPECT_FALSE(Cards::decode(good, 2));
  EXPECT_FALSE(Cards::decode(good, 4));
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(Cards::decode(Buffer(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)), 3)) << length;
  std::mt19937 random(4711);
  for (int round = 0; round < 2000; ++round) {
    Buffer damaged = good;
    damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    (void)Cards::decode(std::move(damaged), 3);
  }
}

}  // namespace
}  // namespace hvd::bootstrap
