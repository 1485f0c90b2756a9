#include "bootstrap/meeting/node_circle.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "store_thread.hpp"

namespace hvd::bootstrap {
namespace {

constexpr auto no_patience = std::chrono::milliseconds(20);

std::string own_name(const char* what) {
  return std::string(what) + std::to_string(::getpid());
}

BroughtCard card_of(int rank) {
  return {Rank{rank}, encode({std::to_string(rank)})};
}

TEST(NodeCircle, brings_the_cards_of_all_and_hands_the_table_back) {
  constexpr int size = 6;
  const std::string name = own_name("all");
  on_threads(size, [&](int rank) {
    NodeCircle circle(name, rank == 0, size - 1);
    for (const char* key : {"first", "second", "third"}) {
      Buffer table(200'000, static_cast<std::byte>(key[0]));
      if (rank == 0) {
        std::set<int> ranks;
        for (const auto& [from, card] : circle.gather(key, soon())) {
          ranks.insert(from.value);
          EXPECT_EQ(card, card_of(from.value).second);
        }
        EXPECT_EQ(ranks, (std::set<int>{1, 2, 3, 4, 5}));
        circle.hand_out(table);
      } else {
        auto answer = circle.bring(card_of(rank), key, soon());
        ASSERT_TRUE(answer && *answer);
        EXPECT_EQ(**answer, table);
        EXPECT_FALSE(circle.leads());
      }
    }
  });
}

TEST(NodeCircle, hands_an_error_on) {
  const std::string name = own_name("error");
  on_threads(2, [&](int rank) {
    NodeCircle circle(name, rank == 0, 1);
    if (rank == 0) {
      EXPECT_EQ(circle.gather("key", soon()).size(), 1u);
      circle.hand_out(Error(ErrorCode::timeout, "rank 7 is late"));
    } else {
      auto answer = circle.bring(card_of(1), "key", soon());
      ASSERT_TRUE(answer && !*answer);
      EXPECT_EQ(answer->error().code, ErrorCode::timeout);
      EXPECT_EQ(answer->error().message, "rank 7 is late");
    }
  });
}

TEST(NodeCircle, lets_who_finds_nobody_go_alone) {
  NodeCircle circle(own_name("nobody"), false, 1, no_patience);
  EXPECT_FALSE(circle.bring(card_of(1), "key", soon()));
  EXPECT_TRUE(circle.leads());
  EXPECT_TRUE(circle.gather("next", soon()).empty());
}

TEST(NodeCircle, goes_on_without_who_is_late_and_tells_it_at_once) {
  const std::string name = own_name("late");
  NodeCircle first(name, true, 2, no_patience), late(name, false, 2, std::chrono::hours(1));
  EXPECT_TRUE(first.gather("key", soon()).empty());
  EXPECT_FALSE(late.bring(card_of(1), "key", soon()));
  EXPECT_TRUE(late.leads());
  // The first rank has missed the late one once. It does not wait for it again, even with a patience of an hour.
  NodeCircle patient(name, true, 0, std::chrono::hours(1));
  EXPECT_TRUE(patient.gather("key", soon()).empty());
}

TEST(NodeCircle, is_dissolved_by_the_end_of_its_first_rank) {
  const std::string name = own_name("end");
  std::thread first([&] {
    NodeCircle circle(name, true, 1);
    EXPECT_EQ(circle.gather("key", soon()).size(), 1u);
  });
  NodeCircle circle(name, false, 1);
  EXPECT_FALSE(circle.bring(card_of(1), "key", soon()));
  EXPECT_TRUE(circle.leads());
  first.join();
}

}  // namespace
}  // namespace hvd::bootstrap
