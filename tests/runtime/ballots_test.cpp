#include "runtime/agreement/ballots.hpp"

#include <gtest/gtest.h>

#include "runtime/floats.hpp"

namespace hvd::runtime {
namespace {

using testing::floats;

Opinions of(int rank, const Signature& signature) {
  return {{Rank{rank}, signature}};
}

TEST(Ballots, are_complete_when_every_voter_has_voted_and_are_one_opinion_if_all_agree) {
  Ballots ballots(3);
  EXPECT_TRUE(ballots.open("a"));
  EXPECT_FALSE(ballots.open("a"));
  EXPECT_FALSE(ballots.vote(2, "a", of(2, floats({4}))));
  EXPECT_FALSE(ballots.vote(0, "a", of(0, floats({4}))));
  auto all = ballots.vote(1, "a", of(1, floats({4})));
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 1u);
  EXPECT_EQ(all->front().rank, Rank{2});
  EXPECT_FALSE(ballots.is_open("a"));
  EXPECT_TRUE(ballots.open("a"));
}

TEST(Ballots, keep_two_opinions_that_differ_whoever_counted_them_and_no_third) {
  Ballots ballots(4);
  ballots.open("a");
  ballots.vote(0, "a", of(0, floats({4})));
  ballots.vote(3, "a", {{Rank{7}, floats({4})}, {Rank{9}, floats({5})}});  // a subtree whose ranks disagree
  ballots.vote(1, "a", of(1, floats({6})));
  auto all = ballots.vote(2, "a", of(2, floats({4})));
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[0].rank, Rank{0});
  EXPECT_EQ((*all)[1].rank, Rank{9});
}

TEST(Ballots, of_allgathers_agree_though_their_first_dimensions_differ) {
  Ballots ballots(2);
  ballots.open("a");
  Signature mine = floats({4, 2}), yours = floats({9, 2});
  mine.verb = yours.verb = Verb::allgather;
  ballots.vote(0, "a", of(0, mine));
  EXPECT_EQ(ballots.vote(1, "a", of(1, yours))->size(), 1u);
}

TEST(Ballots, say_who_is_missing) {
  Ballots ballots(3);
  ballots.open("a");
  ballots.vote(1, "a", of(1, floats({4})));
  EXPECT_EQ(ballots.names(), std::vector<OpName>{OpName("a")});
  EXPECT_EQ(ballots.missing("a"), (std::vector<int>{0, 2}));
  EXPECT_EQ(ballots.missing("unheard of"), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(ballots.has_voted(1, "a"));
  EXPECT_FALSE(ballots.has_voted(0, "a"));
}

TEST(BallotsDeathTest, refuse_a_second_vote) {
  Ballots ballots(2);
  ballots.open("a");
  ballots.vote(1, "a", of(1, floats({4})));
  EXPECT_DEATH(ballots.vote(1, "a", of(1, floats({4}))), "voted twice for 'a'");
}

TEST(Signature, finds_every_kind_of_mismatch) {
  Signature base = floats({2, 3});
  auto changed = [&](auto change) {
    Signature other = base;
    change(other);
    auto text = find_mismatch("t", base, "rank 0", other, "rank 1");
    return text.value_or("none");
  };
  EXPECT_EQ(changed([](Signature&) {}), "none");
  EXPECT_NE(changed([](Signature& s) { s.dtype = DataType::f64; }).find("data types"), std::string::npos);
  EXPECT_NE(changed([](Signature& s) { s.verb = Verb::broadcast; }).find("collective operations"), std::string::npos);
  EXPECT_NE(changed([](Signature& s) { s.shape = {2, 3, 1}; }).find("shapes"), std::string::npos);
  EXPECT_NE(changed([](Signature& s) { s.prescale = 0.5; }).find("prescale"), std::string::npos);
  EXPECT_NE(changed([](Signature& s) { s.postscale = 0.5; }).find("postscale"), std::string::npos);
  EXPECT_NE(changed([](Signature& s) { s.op = ReduceOp::max; }).find("reduce operations"), std::string::npos);
  base.verb = Verb::broadcast;
  EXPECT_NE(changed([](Signature& s) { s.root = Rank{1}; }).find("root ranks"), std::string::npos);
  base.verb = Verb::allgather;
  EXPECT_EQ(changed([](Signature& s) { s.shape[0] = 7; }), "none");
  EXPECT_NE(changed([](Signature& s) { s.shape[1] = 7; }).find("shapes"), std::string::npos);
}

}  // namespace
}  // namespace hvd::runtime
