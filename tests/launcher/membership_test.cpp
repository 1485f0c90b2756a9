// The policy of elastic jobs as a table: a row for each line of what Horovod's users rely on, and for each place where
// this policy departs from it on purpose (docs/decisions/elastic-jobs-go-on-at-once.md). Here: the start, discovery,
// and the order of ranks.
#include <gtest/gtest.h>

#include "launcher/membership_rig.hpp"

namespace hvd::launcher::elastic_table {
namespace {

// ---- the first world

TEST(Membership, begins_when_as_many_have_asked_as_the_user_wants) {
  Rig rig(Rig::settings(3, 2));
  EXPECT_EQ(rig.steps(), Words{});
  rig.find({{"a", 2}});
  EXPECT_EQ(rig.steps(), Words{}) << "two slots are too few for -np 3";
  rig.find({{"a", 2}, {"b", 1}});
  EXPECT_EQ(rig.steps(), (Words{"start 1 on a0", "start 2 on a1", "start 3 on b0"}));
  rig.ask({3, 1});
  EXPECT_EQ(rig.steps(), Words{});
  EXPECT_EQ(rig.membership.waits_for(), (Words{"a process without a rank (host a, slot 1) to call hvd.init()",
                                               "hosts: 3 ranks are needed, 2 are ready"}));
  rig.ask({2});
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 3 in 1", "2 is 1 of 3 in 1", "3 is 2 of 3 in 1"}));
  EXPECT_EQ(rig.membership.waits_for(), Words{});
}

TEST(Membership, uses_all_slots_up_to_the_greatest_number_of_ranks) {
  Rig rig(Rig::settings(1, 1, 3));
  rig.find({{"a", 2}, {"b", 4}});
  EXPECT_EQ(rig.steps(), (Words{"start 1 on a0", "start 2 on a1", "start 3 on b0"}));
}

TEST(Membership, has_spares_on_the_slots_beyond_the_ranks) {
  Membership::Settings settings = Rig::settings(2, 1, 2);
  settings.spares = 1;
  Rig rig(settings);
  rig.find({{"a", 4}});
  EXPECT_EQ(rig.steps(), (Words{"start 1 on a0", "start 2 on a1", "start 3 on a2"}));
  rig.ask({3, 2});
  EXPECT_EQ(rig.steps(), (Words{"2 is 0 of 2 in 1", "3 is 1 of 2 in 1"})) << "the first that asks gets the ranks";
  rig.ask({1});
  EXPECT_EQ(rig.steps(), Words{}) << "the spare waits, and nobody is told of it";
}

TEST(Membership, has_as_many_spares_as_there_are_slots_if_their_number_is_auto) {
  Membership::Settings settings = Rig::settings(2, 1, 2);
  settings.spares = std::numeric_limits<int>::max();
  Rig rig(settings);
  rig.find({{"a", 2}, {"b", 3}});
  EXPECT_EQ(rig.steps().size(), 5u);
}

TEST(Membership, tells_of_spares_for_which_there_are_no_slots) {
  auto notes_with = [](int spares, int slots, bool are_hosts_fixed) {
    Membership::Settings settings = Rig::settings(4, 2, 4);
    settings.spares = spares;
    settings.are_hosts_fixed = are_hosts_fixed;
    Rig rig(settings);
    rig.find({{"a", slots}});
    rig.steps();
    return rig.notes;
  };
  EXPECT_EQ(notes_with(2, 4, true),
            Words{"--spares 2: only 0 can wait, because the hosts have 4 slots and the job may have 4 ranks: give the "
                  "hosts more slots, or a smaller --max-np or -np"});
  EXPECT_EQ(notes_with(Membership::spares_on_all_slots, 4, true).size(), 1u);
  EXPECT_EQ(notes_with(2, 6, true), Words{});
  EXPECT_EQ(notes_with(Membership::spares_on_all_slots, 5, true), Words{});
  EXPECT_EQ(notes_with(2, 4, false), Words{}) << "the script may find more";
  EXPECT_EQ(notes_with(0, 4, true), Words{});
}

TEST(Membership, needs_only_the_least_number_once_a_process_has_failed_before_the_start) {
  Rig rig(Rig::settings(3, 2, 3));
  rig.find({{"a", 3}});
  rig.steps();
  rig.ask({1, 3});
  EXPECT_EQ(rig.steps(), Words{});
  rig.fail(2);
  EXPECT_EQ(rig.steps(), (Words{"out a1", "1 is 0 of 2 in 1", "3 is 1 of 2 in 1"}));
  EXPECT_TRUE(has(rig.notes, "(host a, slot 1) exited with 1")) << ::testing::PrintToString(rig.notes);
}

TEST(Membership, ends_if_all_processes_fail_before_the_start) {
  Rig rig(Rig::settings(2, 1, 2));
  rig.find({{"a", 2}});
  rig.steps();
  rig.fail(1);
  rig.fail(2);
  EXPECT_EQ(rig.steps().back(), "end: all failed");
}

TEST(Membership, succeeds_with_a_program_that_never_asks) {
  Rig rig(Rig::settings(2, 1, 2));
  rig.find({{"a", 2}});
  rig.steps();
  rig.finish({1, 2});
  EXPECT_EQ(rig.steps().back(), "end: finished");
}

TEST(Membership, ends_when_the_slots_for_the_start_are_not_found_in_time) {
  Rig rig(Rig::settings(3, 2));
  rig.find({{"a", 2}});
  rig.steps();
  EXPECT_EQ(rig.wait, seconds(600));
  rig.pass(seconds(600));
  EXPECT_EQ(rig.steps(), Words{"end: too few"});
  EXPECT_EQ(rig.ending->text, "3 ranks are needed (-np), 0 can take part after 600 s (--elastic-timeout)");
}

TEST(Membership, stops_a_process_that_does_not_ask_in_time_and_goes_on_without_it) {
  Rig rig(Rig::settings(2, 1, 2));
  rig.find({{"a", 2}});
  rig.steps();
  rig.ask({1});
  rig.steps();
  rig.pass(seconds(600));
  EXPECT_EQ(rig.steps(), (Words{"stop 2", "out a1", "1 is 0 of 1 in 1"}));
}

// ---- discovery

TEST(Membership, ends_if_the_first_discovery_fails) {
  Rig rig(Rig::settings(1, 1));
  rig.membership.discovery_failed("the script exited with 1");
  EXPECT_EQ(rig.steps(), Words{"end: no discovery"});
  EXPECT_EQ(rig.ending->text, "the script exited with 1");
}

TEST(Membership, goes_on_with_the_known_hosts_if_a_later_discovery_fails) {
  Rig rig(Rig::settings(1, 1));
  rig.begin({{"a", 1}});
  rig.membership.discovery_failed("the script exited with 1");
  EXPECT_EQ(rig.steps(), Words{});
  EXPECT_TRUE(has(rig.notes, "the script exited with 1"));
}

TEST(Membership, tells_the_first_rank_of_an_added_host_when_its_processes_are_ready) {
  Rig rig(Rig::settings(1, 1));
  rig.begin({{"a", 1}});
  rig.find({{"a", 1}, {"b", 2}});
  EXPECT_EQ(rig.steps(), (Words{"start 2 on b0", "start 3 on b1"}));
  rig.ask({2});
  EXPECT_EQ(rig.steps(), Words{}) << "one reset is to add both";
  EXPECT_EQ(rig.wait, Membership::patience_for_newcomers);
  rig.ask({3});
  EXPECT_EQ(rig.steps(), Words{"tell 1 added"});
  EXPECT_EQ(rig.steps(), Words{}) << "once";
  rig.ask({1}, Cause::hosts_updated, 5);
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 3 in 2", "2 is 1 of 3 in 2", "3 is 2 of 3 in 2"}));
}

TEST(Membership, tells_of_one_newcomer_if_another_one_takes_too_long) {
  Rig rig(Rig::settings(1, 1));
  rig.begin({{"a", 1}});
  rig.find({{"a", 1}, {"b", 2}});
  rig.steps();
  rig.ask({2});
  rig.steps();
  rig.pass(Membership::patience_for_newcomers);
  EXPECT_EQ(rig.steps(), Words{"tell 1 added"});
}

TEST(Membership, tells_of_more_slots_on_a_known_host) {
  Rig rig(Rig::settings(1, 1));
  rig.begin({{"a", 1}});
  rig.find({{"a", 2}});
  EXPECT_EQ(rig.steps(), Words{"start 2 on a1"});
  rig.ask({2});
  EXPECT_EQ(rig.steps(), Words{"tell 1 added"});
}

TEST(Membership, tells_nothing_of_hosts_that_are_not_needed) {
  Rig rig(Rig::settings(1, 1, 1));
  rig.begin({{"a", 1}});
  rig.find({{"a", 1}, {"b", 1}});
  EXPECT_EQ(rig.steps(), Words{});
}

TEST(Membership, tells_the_first_rank_of_a_removed_host_and_goes_on_without_it) {
  Rig rig(Rig::settings(3, 1));
  rig.begin({{"a", 1}, {"b", 2}});
  rig.find({{"b", 2}});
  EXPECT_EQ(rig.steps(), Words{"tell 1 removed"}) << "its ranks train until the next commit";
  rig.ask({1, 2, 3}, Cause::hosts_updated, 5);
  EXPECT_EQ(rig.steps(), (Words{"2 is 0 of 2 in 2", "3 is 1 of 2 in 2", "stop 1"}));
  rig.membership.ended(Rig::worker(1), {true, 1, "exited with 1"});
  EXPECT_EQ(rig.steps(), Words{}) << "the end of a removed process is no failure";
}

TEST(Membership, tells_of_fewer_slots_on_a_host) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 2}});
  rig.find({{"a", 1}});
  EXPECT_EQ(rig.steps(), Words{"tell 1 removed"});
  rig.ask({1, 2}, Cause::hosts_updated, 5);
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 1 in 2", "stop 2"}));
}

TEST(Membership, tells_of_hosts_that_came_and_went_as_mixed) {
  Membership::Settings settings = Rig::settings(2, 1, 2);
  settings.spares = 1;
  Rig rig(settings);
  rig.begin({{"a", 1}, {"b", 1}, {"c", 1}});
  rig.find({{"a", 1}, {"c", 1}});
  EXPECT_EQ(rig.steps(), Words{"tell 1 mixed"}) << "the spare on c can be added at once";
}

TEST(Membership, says_how_many_ranks_of_a_world_have_no_state) {
  Membership::Settings settings = Rig::settings(2, 1, 2);
  settings.spares = 1;
  Rig rig(settings);
  rig.begin({{"a", 1}, {"b", 1}, {"c", 1}});
  rig.find({{"a", 1}, {"c", 1}});
  rig.steps();
  rig.ask({1, 2}, Cause::hosts_updated, 5);
  for (;;) {
    Membership::Step step = rig.membership.next();
    if (auto* assign = std::get_if<Membership::Assign>(&step)) {
      EXPECT_EQ(assign->newcomers, 1);
      break;
    }
  }
}

TEST(Membership, keeps_a_host_that_returns_before_the_ranks_have_asked) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 1}, {"b", 1}});
  rig.find({{"a", 1}});
  EXPECT_EQ(rig.steps(), Words{"tell 1 removed"});
  rig.find({{"a", 1}, {"b", 1}});
  rig.ask({1, 2}, Cause::hosts_updated, 5);
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 2 in 2", "2 is 1 of 2 in 2"}));
}

TEST(Membership, waits_if_all_hosts_are_removed_and_goes_on_when_one_returns) {
  Rig rig(Rig::settings(1, 1));
  rig.begin({{"a", 1}});
  rig.find({});
  EXPECT_EQ(rig.steps(), Words{"tell 1 removed"});
  rig.ask({1}, Cause::hosts_updated, 5);
  EXPECT_EQ(rig.steps(), Words{});
  EXPECT_EQ(rig.membership.waits_for().size(), 1u);
  rig.find({{"a", 1}});
  EXPECT_EQ(rig.steps(), Words{"1 is 0 of 1 in 2"});
}

TEST(Membership, does_not_begin_anew_on_hosts_without_the_state) {
  Rig rig(Rig::settings(1, 1));
  rig.begin({{"a", 1}});
  rig.find({{"b", 1}});
  EXPECT_EQ(rig.steps(), (Words{"start 2 on b0", "tell 1 removed"}));
  rig.ask({2});
  rig.steps();
  rig.ask({1}, Cause::hosts_updated, 5);
  EXPECT_EQ(rig.steps(), Words{});
  rig.pass(seconds(600));
  EXPECT_EQ(rig.steps(), Words{"end: all failed"});
}

// ---- order of ranks

TEST(Membership, keeps_the_order_of_hosts_and_appends_new_ones) {
  Rig rig(Rig::settings(3, 1));
  rig.begin({{"c", 1}, {"a", 1}, {"b", 1}});
  rig.find({{"d", 1}, {"b", 1}, {"a", 1}});
  rig.steps();
  rig.ask({4});
  rig.steps();
  rig.ask({1, 2, 3}, Cause::hosts_updated, 5);
  rig.steps();
  EXPECT_EQ(rig.assigned, (std::vector<int>{2, 3, 4}));
}

TEST(Membership, gives_rank_0_to_a_survivor_when_the_first_host_is_lost) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 1}, {"b", 1}});
  rig.membership.host_lost("a", "no answer");
  EXPECT_EQ(rig.steps(), Words{"out a"});
  rig.ask({2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), Words{"2 is 0 of 1 in 2"});
}

TEST(Membership, puts_a_newcomer_behind_the_survivors_of_its_host) {
  Membership::Settings settings = Rig::settings(2, 2, 2);
  settings.spares = 1;
  Rig rig(settings);
  rig.begin({{"a", 3}});
  rig.fail(1);
  rig.ask({2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"2 is 0 of 2 in 2", "3 is 1 of 2 in 2", "start 4 on a0"}));
}

TEST(Membership, gives_rank_0_to_a_rank_with_state_after_a_failed_start) {
  Membership::Settings settings = Rig::settings(2, 1, 2);
  settings.spares = 1;
  Rig rig(settings);
  rig.begin({{"a", 1}, {"b", 1}, {"c", 1}});
  rig.membership.host_lost("a", "no answer");
  rig.ask({2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"out a", "2 is 0 of 2 in 2", "3 is 1 of 2 in 2"}));
  rig.ask({3}, Cause::failed);  // the start failed before it had the state
  rig.ask({2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"2 is 0 of 2 in 3", "3 is 1 of 2 in 3"}));
}

}  // namespace
}  // namespace hvd::launcher::elastic_table
