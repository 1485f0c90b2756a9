// The seats of ranks that come and go, over the messages alone.
#include "bootstrap/store/generations.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace hvd::bootstrap {
namespace {

using store::Verb;

// Newcomers by their connections, which have the same numbers, and the verbs of what each was sent.
class Newcomers {
 public:
  Newcomers()
      : generations({"job",
                     0,
                     {},
                     [this](const AskForPlace& ask) { asked.push_back(ask); },
                     [this](std::uint64_t connection, store::SharedMessage message) {
                       sent[connection].push_back(message->bytes);
                     }}) {}

  bool connect(std::uint64_t connection, int process, int pid = 100) {
    return generations.seat(connection, 1, {store::wire_version, process, 0, pid});
  }
  bool say(std::uint64_t connection, Buffer message) { return generations.handle(connection, message); }
  bool ask(std::uint64_t connection, std::uint8_t cause = 0, std::int64_t step = 0) {
    Buffer message = store::message(Verb::assign, 7);
    ByteWriter out(message);
    out.put(cause);
    out.put(step);
    out.put(step > 0);
    return say(connection, message);
  }
  bool bring_card(std::uint64_t connection, int rank, const std::string& key) {
    Buffer card = store::message(Verb::card, 9), exchange = store::message(Verb::exchange, 9);
    ByteWriter out(card);
    out.put_string(key);
    out.put(static_cast<std::int32_t>(rank));
    out.put_string("");
    ByteWriter(exchange).put_string(key);
    return say(connection, card) && say(connection, exchange);
  }
  Verb last(std::uint64_t connection) {
    auto& all = sent[connection];
    return all.empty() ? Verb::stranger : static_cast<Verb>(all.back()[0]);
  }
  // A failed answer's text.
  std::string refusal(std::uint64_t connection) {
    ByteReader in(sent[connection].back());
    (void)in.get<std::uint8_t>();
    (void)in.get<std::uint32_t>();
    (void)in.get<std::uint8_t>();
    return std::string(in.get_string());
  }
  // Newcomers 0 and 1 are the ranks 0 and 1 of generation 1.
  void begin_with_two() {
    for (int process : {0, 1}) {
      ASSERT_TRUE(connect(static_cast<std::uint64_t>(process), process));
      ASSERT_TRUE(ask(static_cast<std::uint64_t>(process)));
    }
    generations.assign({0, 1, 0, 2, 0, 2});
    generations.assign({1, 1, 1, 2, 1, 2});
  }

  std::vector<AskForPlace> asked;
  std::map<std::uint64_t, std::vector<Buffer>> sent;
  StoreGenerations generations;
};

TEST(StoreGenerations, a_process_that_asks_waits_until_it_has_a_place) {
  Newcomers all;
  ASSERT_TRUE(all.connect(4, 17));
  ASSERT_TRUE(all.ask(4, 1, 6));
  ASSERT_EQ(all.asked.size(), 1u);
  EXPECT_EQ(all.asked[0].process, 17);
  EXPECT_EQ(all.asked[0].cause, 1);
  EXPECT_EQ(all.asked[0].step, 6);
  EXPECT_EQ(all.last(4), Verb::welcome);
  all.generations.assign({17, 3, 0, 1});
  EXPECT_EQ(all.last(4), Verb::assigned);
}

TEST(StoreGenerations, the_ranks_of_a_generation_meet) {
  Newcomers all;
  all.begin_with_two();
  ASSERT_TRUE(all.bring_card(0, 0, "meet"));
  EXPECT_EQ(all.last(0), Verb::assigned);
  ASSERT_TRUE(all.bring_card(1, 1, "meet"));
  EXPECT_EQ(all.last(0), Verb::all);
  EXPECT_EQ(all.last(1), Verb::all);
}

TEST(StoreGenerations, the_end_of_a_rank_fails_the_meeting_of_the_others) {
  Newcomers all;
  all.begin_with_two();
  ASSERT_TRUE(all.bring_card(0, 0, "meet"));
  all.generations.left(1, "ended or closed its connection");
  EXPECT_EQ(all.last(0), Verb::failed);
  EXPECT_NE(all.refusal(0).find("rank 1 ended or closed its connection"), std::string::npos) << all.refusal(0);
}

TEST(StoreGenerations, a_rank_that_asks_again_fails_the_meeting_of_the_others) {
  Newcomers all;
  all.begin_with_two();
  ASSERT_TRUE(all.bring_card(0, 0, "meet"));
  ASSERT_TRUE(all.ask(1, 1));
  EXPECT_EQ(all.last(0), Verb::failed);
}

TEST(StoreGenerations, a_process_without_a_place_in_the_newest_generation_meets_nobody) {
  Newcomers all;
  all.begin_with_two();
  ASSERT_TRUE(all.ask(1, 1));
  all.generations.assign({1, 2, 0, 1});
  ASSERT_TRUE(all.bring_card(0, 0, "meet"));
  EXPECT_EQ(all.last(0), Verb::failed);
  EXPECT_NE(all.refusal(0).find("no place among the ranks"), std::string::npos) << all.refusal(0);
  ASSERT_TRUE(all.bring_card(1, 0, "meet"));
  EXPECT_EQ(all.last(1), Verb::all);
}

TEST(StoreGenerations, a_place_of_a_process_that_has_ended_counts_as_lost) {
  Newcomers all;
  ASSERT_TRUE(all.connect(0, 0));
  ASSERT_TRUE(all.ask(0));
  all.generations.assign({0, 1, 0, 2});
  all.generations.assign({1, 1, 1, 2});
  ASSERT_TRUE(all.bring_card(0, 0, "meet"));
  EXPECT_EQ(all.last(0), Verb::failed);
}

TEST(StoreGenerations, a_process_may_connect_anew_and_its_child_may_not) {
  Newcomers all;
  ASSERT_TRUE(all.connect(0, 5, 100));
  EXPECT_FALSE(all.connect(1, 5, 101));
  EXPECT_NE(all.refusal(1).find("a child of a rank cannot take part"), std::string::npos) << all.refusal(1);
  EXPECT_TRUE(all.connect(2, 5, 100));
  ASSERT_TRUE(all.ask(2));
  all.generations.assign({5, 1, 0, 1});
  EXPECT_EQ(all.last(2), Verb::assigned);
}

TEST(StoreGenerations, news_and_refusals_reach_the_process) {
  Newcomers all;
  ASSERT_TRUE(all.connect(0, 0));
  all.generations.send_news(0, 12.5, 2);
  EXPECT_EQ(all.last(0), Verb::news);
  all.generations.refuse(0, "it does not ask");
  EXPECT_EQ(all.last(0), Verb::news);
  ASSERT_TRUE(all.ask(0));
  all.generations.refuse(0, "the job is over");
  EXPECT_EQ(all.refusal(0), "the job is over");
}

TEST(StoreGenerations, a_question_that_is_not_of_this_protocol_is_refused) {
  Newcomers all;
  ASSERT_TRUE(all.connect(0, 0));
  EXPECT_FALSE(all.ask(0, 3));
  EXPECT_FALSE(all.say(0, store::message(Verb::assign, 1)));
  EXPECT_FALSE(all.connect(1, -1));
}

}  // namespace
}  // namespace hvd::bootstrap
