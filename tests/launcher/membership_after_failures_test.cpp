// The policy of elastic jobs as a table: failures, cooldowns, and the end. membership_test.cpp has the other rows.
#include <gtest/gtest.h>

#include "launcher/membership_rig.hpp"

namespace hvd::launcher::elastic_table {
namespace {

// ---- failures

TEST(MembershipAfterFailures, takes_the_host_of_a_failed_rank_out_while_others_hold_enough_slots) {
  Rig rig(Rig::settings(4, 2));
  rig.begin({{"a", 2}, {"b", 2}});
  rig.fail(1);
  EXPECT_EQ(rig.steps(), Words{});
  rig.ask({3, 4}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"out a", "stop 2", "3 is 0 of 2 in 2", "4 is 1 of 2 in 2"}))
      << "its other rank is stopped, and the job goes on without waiting for it";
  EXPECT_EQ(rig.notes, Words{"rank 0 (host a, slot 0) exited with 1: the job goes on with 2 ranks"});
}

TEST(MembershipAfterFailures, loses_only_the_slot_of_a_failed_rank_if_other_hosts_do_not_hold_enough) {
  Rig rig(Rig::settings(4, 3));
  rig.begin({{"a", 2}, {"b", 2}});
  rig.fail(1);
  rig.ask({3, 4}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), Words{});
  rig.ask({2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"2 is 0 of 3 in 2", "3 is 1 of 3 in 2", "4 is 2 of 3 in 2", "start 5 on a0"}));
}

TEST(MembershipAfterFailures, can_lose_ranks_of_one_fixed_host) {
  Membership::Settings settings = Rig::settings(3, 1);
  settings.are_hosts_fixed = true;
  Rig rig(settings);
  rig.begin({{"a", 3}});
  rig.fail(2);
  rig.ask({1, 3}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 2 in 2", "3 is 1 of 2 in 2", "start 4 on a1"}));
  rig.ask({4});
  EXPECT_EQ(rig.steps(), Words{"tell 1 added"}) << "the replacement joins at a later commit";
  rig.ask({1, 3}, Cause::hosts_updated, 9);
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 3 in 3", "3 is 1 of 3 in 3", "4 is 2 of 3 in 3"}));
}

TEST(MembershipAfterFailures, loses_a_slot_that_fails_three_times_while_the_training_stays_where_it_is) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 2}});
  rig.fail(2);
  rig.ask({1}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 1 in 2", "start 3 on a1"}));
  rig.fail(3);
  EXPECT_EQ(rig.steps(), Words{"start 4 on a1"});
  rig.fail(4);
  EXPECT_EQ(rig.steps(), Words{"out a1"});
}

TEST(MembershipAfterFailures, keeps_a_slot_that_fails_often_while_the_training_comes_further) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 2}});
  for (int worker = 2; worker < 9; ++worker) {
    rig.fail(worker);
    rig.ask({1}, Cause::failed, worker);
    EXPECT_EQ(rig.steps().back(), "start " + std::to_string(worker + 1) + " on a1");
    rig.ask({worker + 1});
    rig.steps();
    rig.ask({1}, Cause::hosts_updated, worker);
    rig.steps();
  }
}

TEST(MembershipAfterFailures, loses_a_slot_whose_new_processes_fail_before_a_commit_while_the_others_commit) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 2}});
  rig.fail(2);
  rig.ask({1}, Cause::failed, 7);
  rig.steps();
  for (int worker : {3, 4}) {
    rig.ask({worker});
    rig.steps();
    rig.ask({1}, Cause::hosts_updated, 5 * worker);
    rig.steps();
    rig.fail(worker);
    rig.ask({1}, Cause::failed, 5 * worker);
    rig.steps();
  }
  EXPECT_EQ(rig.started.back(), 4) << "the first process had come as far as a commit, the next two had not";
  rig.pass(seconds(600));
  EXPECT_EQ(rig.steps(), Words{});
}

TEST(MembershipAfterFailures, counts_failures_anew_after_a_process_of_the_slot_that_took_part_in_a_commit) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 2}});
  rig.fail(2);
  rig.ask({1}, Cause::failed, 7);
  rig.steps();
  rig.fail(3);
  EXPECT_EQ(rig.steps(), Words{"start 4 on a1"});
  rig.ask({4});
  rig.steps();
  rig.ask({1}, Cause::hosts_updated, 8);
  rig.steps();
  rig.ask({1, 4}, Cause::failed, 9);
  rig.steps();
  rig.fail(4);
  rig.ask({1}, Cause::failed, 9);
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 1 in 5", "start 5 on a1"}));
  rig.fail(5);
  EXPECT_EQ(rig.steps(), Words{"start 6 on a1"});
  rig.fail(6);
  EXPECT_EQ(rig.steps(), Words{"out a1"});
}

TEST(MembershipAfterFailures, keeps_the_host_of_a_failed_rank_if_only_its_ranks_have_the_state) {
  Membership::Settings settings = Rig::settings(2, 2, 2);
  settings.spares = 2;
  Rig rig(settings);
  rig.begin({{"a", 2}, {"b", 2}});
  rig.fail(1);
  EXPECT_EQ(rig.steps(), Words{});
  rig.ask({2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"2 is 0 of 2 in 2", "3 is 1 of 2 in 2", "start 5 on a0"}));
}

TEST(MembershipAfterFailures, keeps_the_last_rank_with_the_state_though_its_slot_is_not_found) {
  Membership::Settings settings = Rig::settings(2, 1, 2);
  settings.spares = 1;
  Rig rig(settings);
  rig.begin({{"a", 2}, {"b", 1}});
  rig.find({{"a", 1}, {"b", 1}});
  rig.steps();
  rig.fail(1);
  rig.ask({2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), Words{"start 4 on a0"});
  EXPECT_EQ(rig.membership.waits_for().back(), "a host that has the state of the training");
  rig.find({{"a", 2}, {"b", 1}});
  EXPECT_EQ(rig.steps(), (Words{"2 is 0 of 2 in 2", "3 is 1 of 2 in 2"}));
}

TEST(MembershipAfterFailures, replaces_a_lost_rank_by_a_spare_at_once) {
  Membership::Settings settings = Rig::settings(2, 2, 2);
  settings.spares = 1;
  Rig rig(settings);
  rig.begin({{"a", 1}, {"b", 1}, {"c", 2}});
  rig.fail(2, 137);
  rig.ask({1}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"out b", "1 is 0 of 2 in 2", "3 is 1 of 2 in 2", "start 4 on c1"}))
      << "and starts another spare";
}

TEST(MembershipAfterFailures, goes_on_at_once_and_adds_a_replacement_at_a_later_commit) {
  Rig rig(Rig::settings(2, 1, 2));
  rig.begin({{"a", 1}, {"b", 1}, {"c", 1}});
  rig.fail(2);
  rig.ask({1}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"out b", "1 is 0 of 1 in 2", "start 3 on c0"}));
  rig.ask({3});
  EXPECT_EQ(rig.steps(), Words{"tell 1 added"});
}

TEST(MembershipAfterFailures, waits_for_all_ranks_of_the_old_world_and_names_them) {
  Rig rig(Rig::settings(3, 1));
  rig.begin({{"a", 3}});
  rig.ask({1}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), Words{});
  EXPECT_EQ(rig.membership.waits_for(),
            (Words{"rank 1 (host a, slot 1) to end its round", "rank 2 (host a, slot 2) to end its round"}));
}

TEST(MembershipAfterFailures, tells_the_user_again_and_again_for_which_ranks_the_job_waits) {
  Membership::Settings settings = Rig::settings(3, 1);
  settings.report_every = seconds(60);
  Rig rig(settings);
  rig.begin({{"a", 3}});
  rig.pass(seconds(100));
  EXPECT_EQ(rig.steps(), Words{});
  EXPECT_EQ(rig.wait, std::nullopt) << "a world that trains is no wait";
  rig.ask({1}, Cause::failed, 7);
  rig.ask({2}, Cause::failed, 7);
  rig.steps();
  EXPECT_EQ(rig.wait, seconds(60));
  EXPECT_EQ(rig.notes, Words{});
  for (const char* waited : {"60", "120"}) {
    rig.pass(seconds(60));
    rig.steps();
    EXPECT_EQ(rig.notes, Words{std::string("the job has waited for ") + waited +
                               " s for rank 2 (host a, slot 2) to end its round; the limit is 600 s "
                               "(--elastic-timeout)"});
    rig.notes.clear();
    rig.steps();
    EXPECT_EQ(rig.notes, Words{});
  }
}

TEST(MembershipAfterFailures, stops_a_rank_that_does_not_end_its_round_in_time) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 1}, {"b", 1}});
  rig.ask({1}, Cause::failed, 7);
  rig.steps();
  EXPECT_EQ(rig.wait, seconds(600));
  rig.pass(seconds(600));
  EXPECT_EQ(rig.steps(), (Words{"stop 2", "out b", "1 is 0 of 1 in 2"}));
}

TEST(MembershipAfterFailures, goes_on_with_all_ranks_if_a_round_fails_and_nobody_ends) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 2}});
  rig.ask({1, 2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 2 in 2", "2 is 1 of 2 in 2"}));
}

TEST(MembershipAfterFailures, ends_if_all_ranks_fail) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 1}, {"b", 1}});
  rig.fail(2, 3);
  rig.fail(1, 4);
  EXPECT_EQ(rig.steps().back(), "end: all failed");
  EXPECT_EQ(rig.ending->first_failure, Rig::worker(2));
  EXPECT_EQ(
      rig.ending->text,
      "rank 1 (host b, slot 0) exited with 3, rank 0 (host a, slot 0) exited with 4; no rank is left that has the "
      "state of the training, so nothing can go on");
}

TEST(MembershipAfterFailures, ends_if_all_ranks_fail_though_spares_wait) {
  Membership::Settings settings = Rig::settings(1, 1, 1);
  settings.spares = 1;
  Rig rig(settings);
  rig.begin({{"a", 1}, {"b", 1}});
  rig.fail(1);
  EXPECT_EQ(rig.steps().back(), "end: all failed");
}

TEST(MembershipAfterFailures, replaces_a_spare_that_fails_and_keeps_its_host) {
  Membership::Settings settings = Rig::settings(1, 1, 1);
  settings.spares = 1;
  Rig rig(settings);
  rig.begin({{"a", 3}});
  rig.fail(2);
  EXPECT_EQ(rig.steps(), Words{"start 3 on a1"}) << "the ranks of its host have not failed";
}

TEST(MembershipAfterFailures, refuses_a_process_that_was_lost_and_comes_back) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 1}, {"b", 1}});
  rig.membership.host_lost("b", "no answer");
  rig.ask({1}, Cause::failed, 7);
  rig.steps();
  rig.ask({2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), Words{"refuse 2"});
  rig.ask({77});
  EXPECT_EQ(rig.steps(), Words{"refuse 77"});
}

TEST(MembershipAfterFailures, ignores_news_of_a_process_that_was_replaced) {
  Membership::Settings settings = Rig::settings(2, 1);
  settings.cooldown = CooldownRange{seconds(10), seconds(20)};
  Rig rig(settings);
  rig.begin({{"a", 1}, {"b", 1}});
  rig.membership.host_lost("b", "no answer");
  rig.ask({1}, Cause::failed, 7);
  rig.steps();
  rig.pass(seconds(10));
  EXPECT_EQ(rig.steps(), Words{"start 3 on b0"});
  rig.fail(2);  // the old process of the slot
  EXPECT_EQ(rig.steps(), Words{});
}

// ---- cooldown

TEST(MembershipAfterFailures, keeps_a_failed_host_out_for_the_rest_of_the_job_without_a_cooldown) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 1}, {"b", 1}});
  rig.fail(2);
  rig.ask({1}, Cause::failed, 7);
  rig.steps();
  rig.pass(std::chrono::hours(100));
  rig.find({{"a", 1}, {"b", 1}});
  EXPECT_EQ(rig.steps(), Words{});
}

TEST(MembershipAfterFailures, adds_a_failed_host_again_after_its_cooldown_which_doubles) {
  Membership::Settings settings = Rig::settings(2, 1);
  settings.cooldown = CooldownRange{seconds(10), seconds(35)};
  Rig rig(settings);
  rig.drawn = 0.5;
  rig.begin({{"a", 1}, {"b", 1}});
  int worker = 2;
  for (const char* cooldown : {"out b for 15.0", "out b for 25.0", "out b for 35.0"}) {
    rig.fail(worker, worker);
    rig.ask({1}, Cause::failed, worker);
    EXPECT_EQ(rig.steps().front(), cooldown);
    rig.pass(seconds(35));
    EXPECT_EQ(rig.steps(), Words{"start " + std::to_string(++worker) + " on b0"});
    rig.ask({worker});
    EXPECT_EQ(rig.steps(), Words{"tell 1 added"});
    rig.ask({1}, Cause::hosts_updated, worker);
    rig.steps();
  }
}

// ---- the least number of ranks

TEST(MembershipAfterFailures, waits_for_hosts_if_there_are_fewer_than_the_least_number_of_ranks) {
  Rig rig(Rig::settings(2, 2));
  rig.begin({{"a", 1}, {"b", 1}});
  rig.membership.host_lost("b", "no answer");
  rig.ask({1}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), Words{"out b"});
  EXPECT_EQ(rig.wait, seconds(600));
  EXPECT_EQ(rig.membership.waits_for(), Words{"hosts: 2 ranks are needed, 1 are ready"});
  rig.find({{"a", 1}, {"c", 1}});
  EXPECT_EQ(rig.steps(), Words{"start 3 on c0"});
  rig.ask({3});
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 2 in 2", "3 is 1 of 2 in 2"}));
}

TEST(MembershipAfterFailures, ends_if_the_least_number_is_not_reached_in_time_and_names_who_can_save) {
  Rig rig(Rig::settings(2, 2));
  rig.begin({{"a", 1}, {"b", 1}});
  rig.membership.host_lost("b", "no answer");
  rig.ask({1}, Cause::failed, 7);
  rig.steps();
  rig.pass(seconds(600));
  EXPECT_EQ(rig.steps(), Words{"end: too few"});
  EXPECT_EQ(rig.ending->keeper, Rig::worker(1));
  EXPECT_EQ(rig.ending->text,
            "rank 1 (host b, slot 0) was lost with its host: no answer; 2 ranks are needed (--min-np), 1 can take part "
            "after 600 s (--elastic-timeout)");
}

// Host a is lost, and the job ends for want of ranks; the others ask as `asked` tells. Returns who is to save.
std::optional<Worker> keeper_after(const std::vector<std::pair<int, Membership::Ask>>& asked) {
  Rig rig(Rig::settings(4, 4));
  rig.begin({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}});
  rig.membership.host_lost("a", "no answer");
  for (const auto& [worker, request] : asked) rig.membership.asks(Rig::worker(worker), request);
  rig.steps();
  rig.pass(seconds(600));
  EXPECT_EQ(rig.steps(), Words{"end: too few"});
  return rig.ending->keeper;
}

TEST(MembershipAfterFailures, names_the_lowest_rank_that_can_save) {
  EXPECT_EQ(
      keeper_after({{2, {Cause::failed, 7, false}}, {4, {Cause::failed, 7, true}}, {3, {Cause::failed, 7, true}}}),
      Rig::worker(3));
}

TEST(MembershipAfterFailures, names_of_those_that_can_save_one_that_has_come_furthest) {
  EXPECT_EQ(keeper_after({{2, {Cause::failed, 5, true}}, {4, {Cause::failed, 7, true}}, {3, {Cause::failed, 7, true}}}),
            Rig::worker(3));
}

TEST(MembershipAfterFailures, does_not_wait_for_fixed_hosts_that_are_lost) {
  Membership::Settings settings = Rig::settings(2, 2);
  settings.are_hosts_fixed = true;
  Rig rig(settings);
  rig.begin({{"a", 1}, {"b", 1}});
  rig.membership.host_lost("b", "no answer");
  rig.ask({1}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), (Words{"out b", "end: too few"}));
}

TEST(MembershipAfterFailures, waits_for_a_fixed_host_whose_cooldown_ends_in_time) {
  Membership::Settings settings = Rig::settings(2, 2);
  settings.are_hosts_fixed = true;
  settings.cooldown = CooldownRange{seconds(10), seconds(20)};
  Rig rig(settings);
  rig.begin({{"a", 2}});
  rig.fail(2);
  rig.ask({1}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), Words{"out a1 for 10.0"});
  EXPECT_EQ(rig.wait, seconds(10));
  rig.pass(seconds(10));
  EXPECT_EQ(rig.steps(), Words{"start 3 on a1"});
  rig.ask({3});
  EXPECT_EQ(rig.steps(), (Words{"1 is 0 of 2 in 2", "3 is 1 of 2 in 2"}));
}

// ---- the end

TEST(MembershipAfterFailures, succeeds_when_all_ranks_have_finished) {
  Membership::Settings settings = Rig::settings(2, 1, 2);
  settings.spares = 1;
  Rig rig(settings);
  rig.begin({{"a", 3}});
  rig.finish({2});
  EXPECT_EQ(rig.steps(), Words{}) << "and starts nothing on its slot";
  rig.finish({1});
  EXPECT_EQ(rig.steps(), Words{"end: finished"});
  EXPECT_EQ(rig.ending->text, "");
}

TEST(MembershipAfterFailures, ends_if_a_rank_fails_after_another_one_has_finished) {
  Rig rig(Rig::settings(3, 1));
  rig.begin({{"a", 3}});
  rig.finish({1});
  rig.fail(2);
  EXPECT_EQ(rig.steps(), Words{}) << "the third one may finish";
  rig.finish({3});
  EXPECT_EQ(rig.steps().back(), "end: finished early");
  EXPECT_EQ(rig.ending->text, "rank 1 (host a, slot 1) exited with 1, after other ranks had finished");
}

TEST(MembershipAfterFailures, ends_if_ranks_want_another_round_after_one_has_finished) {
  Rig rig(Rig::settings(2, 1));
  rig.begin({{"a", 2}});
  rig.finish({1});
  rig.ask({2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), Words{"end: finished early"});
  EXPECT_EQ(rig.ending->text,
            "rank 0 (host a, slot 0) has ended without a failure, and other ranks still need the job: all ranks must "
            "make the same number of steps");
}

TEST(MembershipAfterFailures, ends_after_the_limit_of_resets) {
  Membership::Settings settings = Rig::settings(1, 1);
  settings.reset_limit = 1;
  Rig rig(settings);
  rig.begin({{"a", 1}});
  rig.ask({1}, Cause::hosts_updated, 1);
  EXPECT_EQ(rig.steps(), Words{"1 is 0 of 1 in 2"});
  EXPECT_EQ(rig.membership.resets(), 1);
  rig.ask({1}, Cause::hosts_updated, 2);
  EXPECT_EQ(rig.steps(), Words{"end: reset limit"});
  EXPECT_EQ(rig.ending->text, "Horovod was shutdown because number of resets during elastic job exceeded limit: 1");
}

TEST(MembershipAfterFailures, ends_when_the_same_first_failure_has_happened_at_the_same_step_three_times) {
  Rig rig(Rig::settings(4, 1));
  rig.begin({{"a", 4}});
  rig.fail(4, 9);
  rig.ask({1, 2, 3}, Cause::failed, 7);
  EXPECT_EQ(rig.steps().back(), "start 5 on a3");
  rig.fail(3, 9);
  rig.ask({1, 2}, Cause::failed, 7);
  EXPECT_EQ(rig.steps().back(), "start 6 on a2");
  rig.fail(2, 9);
  rig.ask({1}, Cause::failed, 7);
  EXPECT_EQ(rig.steps(), Words{"end: equal failures"});
}

TEST(MembershipAfterFailures, goes_on_if_the_training_comes_further_between_equal_failures) {
  Rig rig(Rig::settings(4, 1));
  rig.begin({{"a", 1}});
  for (int step = 1; step < 9; ++step) {
    rig.ask({1}, Cause::failed, step / 2);
    EXPECT_EQ(rig.steps().size(), 1u) << step;
  }
}

TEST(MembershipAfterFailures, does_not_compare_losses_of_hosts) {
  Rig rig(Rig::settings(5, 1));
  rig.begin({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}});
  for (const char* host : {"e", "d", "c", "b"}) {
    rig.membership.host_lost(host, "no answer");
    for (int worker = 1; worker < host[0] - 'a' + 1; ++worker) rig.ask({worker}, Cause::failed, 7);
    EXPECT_NE(rig.steps().back().substr(0, 3), "end") << host;
  }
}

TEST(MembershipAfterFailures, ends_once) {
  Rig rig(Rig::settings(1, 1));
  rig.begin({{"a", 1}});
  rig.finish({1});
  EXPECT_EQ(rig.steps(), Words{"end: finished"});
  rig.find({{"a", 1}, {"b", 1}});
  rig.ask({1});
  EXPECT_EQ(rig.steps().back(), "end: finished");
}

// ---- ranks that begin anew, and those that differ in what they need

TEST(MembershipAfterFailures, lets_all_ranks_begin_anew_by_themselves_as_often_as_they_like) {
  Membership::Settings settings = Rig::settings(2, 2);
  settings.reset_limit = 1;
  Rig rig(settings);
  rig.begin({{"a", 2}});
  rig.ask({1, 2}, Cause::hosts_updated, 7);
  rig.steps();
  for (int epoch = 3; epoch < 8; ++epoch) {
    rig.ask({1, 2});
    const std::string in = " of 2 in " + std::to_string(epoch);
    EXPECT_EQ(rig.steps(), (Words{"1 is 0" + in, "2 is 1" + in}));
    EXPECT_EQ(rig.notes.back(), "all ranks have begun anew: the job goes on with 2 ranks");
  }
  EXPECT_EQ(rig.membership.resets(), 1);
}

TEST(MembershipAfterFailures, ends_if_all_ranks_have_lost_the_state_by_a_failed_round) {
  Rig rig(Rig::settings(2, 2));
  rig.begin({{"a", 2}});
  rig.ask({1, 2}, Cause::hosts_updated, 7);
  rig.steps();
  rig.ask({1, 2}, Cause::failed);
  EXPECT_EQ(rig.steps(), Words{"end: all failed"});
}

TEST(MembershipAfterFailures, lets_all_ranks_sync_if_only_some_of_them_have_failed) {
  Rig rig(Rig::settings(2, 2));
  rig.begin({{"a", 2}});
  rig.ask({1, 2}, Cause::failed, 7);
  rig.steps();
  EXPECT_EQ(rig.newcomers, 0);
  rig.ask({1}, Cause::hosts_updated, 8);
  rig.ask({2}, Cause::failed, 8);
  rig.steps();
  EXPECT_EQ(rig.newcomers, 1);
  rig.ask({1, 2}, Cause::failed, 8);
  rig.steps();
  EXPECT_EQ(rig.newcomers, 1) << "the ranks of the world between may not have met";
  rig.ask({1, 2}, Cause::hosts_updated, 9);
  rig.steps();
  EXPECT_EQ(rig.newcomers, 0);
}

TEST(MembershipAfterFailures, names_the_first_failure_before_the_first_world) {
  Rig rig(Rig::settings(2, 2));
  rig.find({{"a", 2}});
  rig.steps();
  rig.fail(2, 127);
  rig.fail(1, 2);
  EXPECT_EQ(rig.steps().back(), "end: all failed");
  ASSERT_TRUE(rig.ending && rig.ending->first_failure);
  EXPECT_EQ(*rig.ending->first_failure, Rig::worker(2));
}

TEST(MembershipAfterFailures, tells_of_a_discovery_that_fails_again_only_if_the_text_is_another) {
  Rig rig(Rig::settings(1, 1));
  rig.begin({{"a", 1}});
  for (const char* why : {"no answer", "no answer", "no list"}) {
    rig.membership.discovery_failed(why);
    rig.steps();
  }
  EXPECT_EQ(rig.notes.size(), 2u);
  rig.find({{"a", 1}});
  rig.membership.discovery_failed("no list");
  rig.steps();
  EXPECT_EQ(rig.notes.size(), 3u);
}

}  // namespace
}  // namespace hvd::launcher::elastic_table
