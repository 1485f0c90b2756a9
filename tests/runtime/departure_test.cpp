// The end of a rank as a table: every fact in every phase, and the step that follows.
#include "runtime/ending/departure.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/overloaded.hpp"

namespace hvd::runtime::departing {
namespace {

using std::chrono::seconds;

constexpr seconds time_for_cause(7);

// One rank's departure with a clock that the test sets. The steps that it orders are written down as words.
class Rig {
 public:
  explicit Rig(Rank me = Rank{2}, seconds for_cause = time_for_cause, bool is_elastic = false)
      : departure({me, for_cause, [](Rank rank) { return "rank " + std::to_string(rank.value); },
                   [] { return std::string("the leader"); }, [] { return std::string("'x' does not move"); },
                   [this] { return now; }, is_elastic}) {}

  // Returns all steps that are to be done now, in order.
  std::vector<std::string> steps() {
    std::vector<std::string> said;
    for (;;) {
      Departure::Step step = departure.next();
      if (std::holds_alternative<Departure::GoOn>(step)) return said;
      said.push_back(words(step));
      if (std::holds_alternative<Departure::WaitUntil>(step)) return said;
    }
  }
  void pass(seconds time) { now += time; }

  Departure::Time now{};
  Departure departure;

 private:
  std::string words(const Departure::Step& step) const {
    return std::visit(
        Overloaded{
            [](const Departure::GoOn&) { return std::string("go on"); },
            [&](const Departure::WaitUntil& it) {
              return "wait for " + std::to_string(std::chrono::duration_cast<seconds>(it.when - now).count()) + " s";
            },
            [](const Departure::SendRequest& it) { return "send the request '" + std::string(it.reason) + "'"; },
            [](const Departure::Warn&) { return std::string("warn"); },
            [](const Departure::AnnounceLoss& it) { return "announce the loss of " + std::to_string(it.lost.value); },
            [](const Departure::TellNeighbours& it) { return "tell neighbours of " + std::to_string(it.lost.value); },
            [](const Departure::Leave&) { return std::string("leave in order"); },
            [](const Departure::End& it) { return "end: " + std::string(name_of(it.reason.code)); },
        },
        step);
  }
};

using Steps = std::vector<std::string>;

Error peer_lost(const std::string& why) {
  return {ErrorCode::peer_lost, why};
}
Error consequence() {
  Error error{ErrorCode::peer_lost, "a connection was closed"};
  error.is_a_consequence = true;
  return error;
}

std::string reason_of(Rig& rig) {
  for (;;) {
    Departure::Step step = rig.departure.next();
    if (const auto* end = std::get_if<Departure::End>(&step)) return end->reason.message;
    if (std::holds_alternative<Departure::GoOn>(step) || std::holds_alternative<Departure::WaitUntil>(step)) return "";
  }
}

// ---- the table

// The facts that lead a rank into each phase in which facts can still change something.
struct Start {
  const char* name;
  std::function<void(Rig&)> reach;
};
const Start connecting{"connecting", [](Rig&) {}};
const Start connecting_late{"connecting, the log has ended", [](Rig& rig) { rig.departure.log_ended(Rank{0}, ""); }};
const Start running{"running", [](Rig& rig) { rig.departure.connected(); }};
const Start stopping{"running, the request is sent", [](Rig& rig) {
                       rig.departure.connected();
                       rig.departure.stop_requested("");
                       rig.steps();
                     }};
const Start doubting{"running, a batch failed as a consequence", [](Rig& rig) {
                       rig.departure.connected();
                       rig.departure.batch_failed(consequence());
                       rig.steps();
                     }};
const Start finishing{"the log has ended, work is left", [](Rig& rig) {
                        rig.departure.connected();
                        rig.departure.log_ended(Rank{0}, "");
                        rig.steps();
                      }};
const Start held_back{"held back", [](Rig& rig) {
                        rig.departure.connected();
                        rig.departure.log_ended(Rank{0}, "");
                        rig.departure.work_done();
                        rig.steps();
                      }};
const Start ended{"ended", [](Rig& rig) {
                    rig.departure.connected();
                    rig.departure.loss_noticed(Rank{1});
                    rig.steps();
                  }};

struct Fact {
  const char* name;
  std::function<void(Rig&)> state;
};
const Fact nothing{"nothing", [](Rig&) {}};
const Fact links_are_there{"the links are there", [](Rig& rig) { rig.departure.connected(); }};
const Fact start_is_refused{"the start is refused", [](Rig& rig) {
                              rig.departure.start_failed({ErrorCode::unsupported, "no transport"});
                            }};
const Fact start_takes_too_long{"the start takes too long", [](Rig& rig) {
                                  rig.departure.start_failed({ErrorCode::timeout, "not in time"});
                                }};
const Fact stop_is_requested{"a stop is requested", [](Rig& rig) { rig.departure.stop_requested(""); }};
const Fact stop_is_requested_with_a_reason{"a stop is requested with a reason",
                                           [](Rig& rig) { rig.departure.stop_requested("MPI ends"); }};
const Fact log_ends_by_this_rank{"the log ends by this rank", [](Rig& rig) { rig.departure.log_ended(Rank{2}, ""); }};
const Fact log_ends_by_another{"the log ends by another", [](Rig& rig) { rig.departure.log_ended(Rank{0}, ""); }};
const Fact log_ends_for_a_reason{"the log ends by another for a reason",
                                 [](Rig& rig) { rig.departure.log_ended(Rank{0}, "MPI ends"); }};
const Fact all_is_done{"all that was scheduled is done", [](Rig& rig) { rig.departure.work_done(); }};
const Fact batch_fails{"a batch fails", [](Rig& rig) { rig.departure.batch_failed(peer_lost("rank 1 is silent")); }};
const Fact batch_fails_for_want_of_memory{"a batch fails for want of memory", [](Rig& rig) {
                                            rig.departure.batch_failed({ErrorCode::out_of_memory, "no memory"});
                                          }};
const Fact batch_fails_as_a_consequence{"a batch fails as a consequence",
                                        [](Rig& rig) { rig.departure.batch_failed(consequence()); }};
const Fact loss_is_announced{"a loss is announced",
                             [](Rig& rig) { rig.departure.loss_announced(Rank{1}, "rank 1 is lost"); }};
const Fact loss_is_noticed{"a loss is noticed", [](Rig& rig) { rig.departure.loss_noticed(Rank{3}); }};
const Fact leader_hears_of_a_loss{"the leader learns of a loss",
                                  [](Rig& rig) { rig.departure.leader_ends(peer_lost("node 1 is lost")); }};
const Fact leader_ends_a_stall{"the leader ends a stall", [](Rig& rig) {
                                 rig.departure.leader_ends({ErrorCode::shut_down, "stalled"});
                               }};
const Fact rank_is_stalled{"this rank is stalled for good", [](Rig& rig) {
                             rig.departure.stalled({ErrorCode::shut_down, "stalled"});
                           }};
const Fact seconds_pass_7{"7 s pass", [](Rig& rig) { rig.pass(time_for_cause); }};
const Fact seconds_pass_10{"10 s pass", [](Rig& rig) { rig.pass(Departure::answer_time); }};
const Fact seconds_pass_5{"5 s pass", [](Rig& rig) { rig.pass(Departure::time_to_end); }};

struct Row {
  const Start& start;
  const Fact& fact;
  Steps steps;
};

const std::string lost = "end: peer lost", shut_down = "end: shut down", timeout = "end: timeout";

const std::vector<Row> table{
    {connecting, nothing, {}},
    {connecting, links_are_there, {}},
    {connecting, start_is_refused, {"announce the loss of 2", "tell neighbours of 2", "end: unsupported"}},
    {connecting, start_takes_too_long, {"tell neighbours of 2", timeout}},
    {connecting, stop_is_requested, {"send the request ''"}},
    {connecting, stop_is_requested_with_a_reason, {"send the request 'MPI ends'"}},
    {connecting, log_ends_by_this_rank, {}},
    {connecting, log_ends_by_another, {}},
    {connecting, log_ends_for_a_reason, {}},
    {connecting, all_is_done, {}},
    {connecting, loss_is_announced, {"announce the loss of 1", "tell neighbours of 1", lost}},
    {connecting, loss_is_noticed, {"announce the loss of 3", "tell neighbours of 3", lost}},
    {connecting, leader_hears_of_a_loss, {"announce the loss of 2", "tell neighbours of 2", lost}},
    {connecting, seconds_pass_10, {}},

    {connecting_late, nothing, {}},
    {connecting_late, links_are_there, {}},  // nothing to do; the engine then reports that there is no work
    {connecting_late, start_is_refused, {"announce the loss of 2", "tell neighbours of 2", "end: unsupported"}},
    {connecting_late, start_takes_too_long, {"tell neighbours of 2", timeout}},
    {connecting_late, stop_is_requested, {"send the request ''"}},
    {connecting_late, all_is_done, {}},
    {connecting_late, loss_is_announced, {"announce the loss of 1", "tell neighbours of 1", lost}},
    {connecting_late, loss_is_noticed, {"announce the loss of 3", "tell neighbours of 3", lost}},
    {connecting_late, leader_hears_of_a_loss, {"announce the loss of 2", "tell neighbours of 2", lost}},
    {connecting_late, seconds_pass_10, {}},

    {running, nothing, {}},
    {running, links_are_there, {}},
    {running, start_is_refused, {}},  // a refused start comes too late when the rank is running
    {running, stop_is_requested, {"send the request ''", "wait for 10 s"}},
    {running, stop_is_requested_with_a_reason, {"send the request 'MPI ends'", "wait for 10 s"}},
    {running, log_ends_by_this_rank, {}},
    {running, log_ends_by_another, {}},
    {running, log_ends_for_a_reason, {}},
    {running, all_is_done, {}},
    {running, batch_fails, {"announce the loss of 2", "tell neighbours of 2", lost}},
    {running, batch_fails_for_want_of_memory, {"announce the loss of 2", "tell neighbours of 2", "end: out of memory"}},
    {running, batch_fails_as_a_consequence, {"wait for 7 s"}},
    {running, loss_is_announced, {"announce the loss of 1", "tell neighbours of 1", lost}},
    {running, loss_is_noticed, {"announce the loss of 3", "tell neighbours of 3", lost}},
    {running, leader_hears_of_a_loss, {"announce the loss of 2", "tell neighbours of 2", lost}},
    {running, leader_ends_a_stall, {"tell neighbours of 2", shut_down}},
    {running, rank_is_stalled, {"tell neighbours of 2", shut_down}},
    {running, seconds_pass_10, {}},

    {stopping, nothing, {"wait for 10 s"}},
    {stopping, stop_is_requested, {"wait for 10 s"}},
    {stopping, stop_is_requested_with_a_reason, {"wait for 10 s"}},
    {stopping, log_ends_by_this_rank, {"wait for 10 s"}},
    {stopping, log_ends_by_another, {"wait for 10 s"}},
    {stopping, all_is_done, {"wait for 10 s"}},
    {stopping, batch_fails, {"announce the loss of 2", "tell neighbours of 2", lost}},
    {stopping, batch_fails_as_a_consequence, {"wait for 7 s"}},
    {stopping, loss_is_announced, {"announce the loss of 1", "tell neighbours of 1", lost}},
    {stopping, loss_is_noticed, {"announce the loss of 3", "tell neighbours of 3", lost}},
    {stopping, leader_hears_of_a_loss, {"announce the loss of 2", "tell neighbours of 2", lost}},
    {stopping, rank_is_stalled, {"tell neighbours of 2", shut_down}},
    {stopping, seconds_pass_7, {"wait for 3 s"}},
    {stopping, seconds_pass_10, {"warn", "tell neighbours of 2", timeout}},

    {doubting, nothing, {"wait for 7 s"}},
    {doubting, stop_is_requested, {"send the request ''", "wait for 7 s"}},
    {doubting, log_ends_by_another, {"wait for 7 s"}},
    {doubting, batch_fails, {"wait for 7 s"}},  // the first failure counts
    {doubting, loss_is_announced, {"announce the loss of 1", "tell neighbours of 1", lost}},
    {doubting, loss_is_noticed, {"announce the loss of 3", "tell neighbours of 3", lost}},
    {doubting, leader_hears_of_a_loss, {"announce the loss of 2", "tell neighbours of 2", lost}},
    {doubting, leader_ends_a_stall, {"tell neighbours of 2", shut_down}},
    {doubting, rank_is_stalled, {"tell neighbours of 2", shut_down}},
    {doubting, seconds_pass_5, {"wait for 2 s"}},
    {doubting, seconds_pass_7, {"announce the loss of 2", "tell neighbours of 2", lost}},

    {finishing, nothing, {}},
    {finishing, stop_is_requested, {"send the request ''", "wait for 10 s"}},
    {finishing, log_ends_for_a_reason, {}},
    {finishing, all_is_done, {"leave in order", "wait for 5 s"}},
    {finishing, batch_fails, {"announce the loss of 2", "tell neighbours of 2", lost}},
    {finishing,
     batch_fails_for_want_of_memory,
     {"announce the loss of 2", "tell neighbours of 2", "end: out of memory"}},
    {finishing, batch_fails_as_a_consequence, {"wait for 7 s"}},
    {finishing, loss_is_announced, {"announce the loss of 1", "tell neighbours of 1", lost}},
    {finishing, loss_is_noticed, {"announce the loss of 3", "tell neighbours of 3", lost}},
    {finishing, leader_hears_of_a_loss, {"announce the loss of 2", "tell neighbours of 2", lost}},
    {finishing, rank_is_stalled, {"tell neighbours of 2", "wait for 5 s"}},
    {finishing, seconds_pass_10, {}},

    {held_back, nothing, {"wait for 5 s"}},
    {held_back, stop_is_requested, {shut_down}},
    {held_back, stop_is_requested_with_a_reason, {shut_down}},
    {held_back, log_ends_by_this_rank, {"wait for 5 s"}},
    {held_back, all_is_done, {"wait for 5 s"}},
    {held_back, batch_fails, {"wait for 5 s"}},
    {held_back, loss_is_announced, {"wait for 5 s"}},
    {held_back, loss_is_noticed, {"wait for 5 s"}},
    {held_back, leader_hears_of_a_loss, {"wait for 5 s"}},
    {held_back, rank_is_stalled, {"wait for 5 s"}},
    {held_back, seconds_pass_5, {shut_down}},

    {ended, nothing, {}},
    {ended, links_are_there, {}},
    {ended, start_is_refused, {}},
    {ended, stop_is_requested, {}},
    {ended, log_ends_by_this_rank, {}},
    {ended, log_ends_by_another, {}},
    {ended, all_is_done, {}},
    {ended, batch_fails, {}},
    {ended, loss_is_announced, {}},
    {ended, loss_is_noticed, {}},
    {ended, leader_hears_of_a_loss, {}},
    {ended, rank_is_stalled, {}},
    {ended, seconds_pass_10, {}},
};

TEST(Departure, does_in_every_phase_what_every_fact_demands) {
  for (const Row& row : table) {
    Rig rig;
    row.start.reach(rig);
    row.fact.state(rig);
    EXPECT_EQ(rig.steps(), row.steps) << "when " << row.start.name << ", and " << row.fact.name;
  }
}

TEST(Departure, does_the_same_when_a_fact_is_stated_twice) {
  for (const Row& row : table) {
    if (&row.fact == &seconds_pass_5 || &row.fact == &seconds_pass_7 || &row.fact == &seconds_pass_10) continue;
    Rig rig;
    row.start.reach(rig);
    row.fact.state(rig);
    row.fact.state(rig);
    EXPECT_EQ(rig.steps(), row.steps) << "when " << row.start.name << ", and " << row.fact.name << " twice";
  }
}

TEST(Departure, names_who_has_stopped_the_job_and_the_reason) {
  for (Rank by : {Rank{0}, Rank{2}})
    for (std::string reason : {"", "MPI ends"}) {
      Rig rig;
      rig.departure.connected();
      rig.departure.stop_requested("");
      rig.departure.log_ended(by, reason);
      rig.departure.work_done();
      std::string who = by == Rank{2} ? "this rank" : "rank 0";
      std::string expected = "Horovod has been shut down by " + who + (reason.empty() ? ". " : ": MPI ends. ");
      EXPECT_EQ(reason_of(rig).rfind(expected, 0), 0u) << expected;
      EXPECT_TRUE(rig.departure.is_in_order());
    }
}

TEST(Departure, names_the_rank_whose_loss_it_has_noticed) {
  Rig rig;
  rig.departure.connected();
  rig.departure.loss_noticed(Rank{3});
  EXPECT_EQ(reason_of(rig).rfind("rank 3 ended or was killed without hvd.shutdown()", 0), 0u);
  EXPECT_FALSE(rig.departure.is_in_order());
}

TEST(Departure, believes_the_leader_first_then_the_board_then_itself) {
  const std::vector<std::pair<const Fact*, std::string>> facts{{&leader_hears_of_a_loss, "node 1 is lost"},
                                                               {&loss_is_announced, "rank 1 is lost"},
                                                               {&loss_is_noticed, "rank 3"}};
  for (std::size_t first = 0; first < facts.size(); ++first) {
    Rig rig;
    rig.departure.connected();
    for (std::size_t i = facts.size(); i-- > first;) facts[i].first->state(rig);
    EXPECT_EQ(reason_of(rig).rfind(facts[first].second, 0), 0u) << facts[first].second;
  }
}

TEST(Departure, names_the_cause_that_is_announced_while_a_batch_has_failed_from_it) {
  Rig rig;
  doubting.reach(rig);
  rig.pass(seconds(6));
  rig.departure.loss_announced(Rank{1}, "rank 1 is lost");
  EXPECT_EQ(reason_of(rig), "rank 1 is lost");
}

TEST(Departure, names_a_known_loss_rather_than_the_batch_that_failed_from_it) {
  for (const Fact* fact : {&loss_is_announced, &loss_is_noticed, &leader_hears_of_a_loss}) {
    Rig rig;
    rig.departure.connected();
    rig.departure.batch_failed(peer_lost("a link was closed"));
    fact->state(rig);
    EXPECT_NE(reason_of(rig), "a link was closed") << fact->name;
  }
}

TEST(Departure, leaves_in_order_whoever_is_lost_after_the_agreed_end) {
  for (const Fact* fact : {&loss_is_announced, &loss_is_noticed, &leader_hears_of_a_loss}) {
    Rig rig;
    finishing.reach(rig);
    rig.departure.work_done();
    fact->state(rig);
    EXPECT_EQ(rig.steps(), (Steps{"leave in order", "wait for 5 s"})) << fact->name;
  }
}

TEST(Departure, says_how_a_batch_failed_when_nobody_has_told_the_cause) {
  Rig rig;
  doubting.reach(rig);
  rig.pass(time_for_cause);
  EXPECT_EQ(reason_of(rig), "a connection was closed");
}

TEST(Departure, waits_for_the_cause_from_the_first_failure_however_often_it_asks) {
  Rig rig;
  doubting.reach(rig);
  for (int second = 1; second < 7; ++second) {
    rig.pass(seconds(1));
    rig.departure.batch_failed(consequence());
    EXPECT_EQ(rig.steps(), Steps{"wait for " + std::to_string(7 - second) + " s"});
  }
}

TEST(Departure, holds_back_only_for_another_rank_that_stopped_without_a_reason) {
  for (const Fact* fact : {&log_ends_by_this_rank, &log_ends_for_a_reason}) {
    Rig rig;
    rig.departure.connected();
    fact->state(rig);
    rig.departure.work_done();
    EXPECT_EQ(rig.steps(), (Steps{"leave in order", shut_down})) << fact->name;
  }
}

TEST(Departure, holds_nothing_back_when_its_own_program_has_stopped) {
  Rig rig;
  stopping.reach(rig);
  rig.departure.log_ended(Rank{0}, "");
  rig.departure.work_done();
  EXPECT_EQ(rig.steps(), (Steps{"leave in order", shut_down}));
}

TEST(Departure, leaves_in_order_only_when_the_links_are_there) {
  Rig rig;
  connecting_late.reach(rig);
  rig.departure.work_done();
  EXPECT_EQ(rig.steps(), Steps{});
  rig.departure.connected();
  EXPECT_EQ(rig.steps(), (Steps{"leave in order", "wait for 5 s"}));
}

TEST(Departure, does_not_leave_alone_while_the_links_are_made) {
  Rig rig;
  rig.departure.stop_requested("");
  EXPECT_EQ(rig.steps(), Steps{"send the request ''"});
  rig.pass(Departure::answer_time);
  EXPECT_EQ(rig.steps(), Steps{});
  rig.departure.connected();
  EXPECT_EQ(rig.steps(), (Steps{"warn", "tell neighbours of 2", timeout}));
}

TEST(Departure, says_that_the_leader_did_not_answer_when_it_leaves_alone) {
  Rig rig;
  stopping.reach(rig);
  rig.pass(Departure::answer_time);
  EXPECT_EQ(reason_of(rig), "the leader did not answer the request to shut down within 10 s; this rank left alone");
}

TEST(Departure, leaves_agreed_work_only_when_it_has_not_moved_for_long_and_says_so) {
  Rig rig;
  stopping.reach(rig);
  rig.departure.log_ended(Rank{0}, "");
  for (int i = 0; i < 3; ++i) {
    rig.pass(seconds(8));
    rig.departure.work_moved(rig.now);
    EXPECT_EQ(rig.steps(), Steps{"wait for 10 s"});
  }
  rig.pass(Departure::answer_time);
  EXPECT_EQ(reason_of(rig), "the shutdown was agreed, but 'x' does not move; this rank left alone");
}

TEST(Departure, gives_agreed_work_as_long_as_a_peer_that_is_silent) {
  Rig rig(Rank{2}, seconds(40));
  stopping.reach(rig);
  rig.departure.log_ended(Rank{0}, "");
  rig.pass(seconds(39));
  EXPECT_EQ(rig.steps(), Steps{"wait for 1 s"});
  rig.pass(seconds(1));
  EXPECT_EQ(rig.steps(), (Steps{"warn", "tell neighbours of 2", timeout}));
}

TEST(Departure, holds_no_rank_of_an_elastic_job_back) {
  for (bool is_elastic : {false, true}) {
    Rig rig(Rank{2}, time_for_cause, is_elastic);
    rig.departure.connected();
    rig.departure.log_ended(Rank{0}, "");
    rig.departure.work_done();
    EXPECT_EQ(rig.steps().back().starts_with("end: "), is_elastic);
  }
}

TEST(Departure, keeps_its_reason_whatever_comes_after) {
  for (const Fact* fact : {&loss_is_announced, &leader_hears_of_a_loss, &batch_fails, &stop_is_requested}) {
    Rig rig;
    rig.departure.connected();
    rig.departure.loss_noticed(Rank{3});
    Departure::Step first = rig.departure.next();
    fact->state(rig);
    ASSERT_TRUE(std::holds_alternative<Departure::AnnounceLoss>(first));
    EXPECT_EQ(std::get<Departure::AnnounceLoss>(first).lost, Rank{3});
    EXPECT_EQ(rig.steps(), (Steps{"tell neighbours of 3", lost})) << fact->name;
  }
}

}  // namespace
}  // namespace hvd::runtime::departing
