#include "launcher/job/verdict.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

namespace hvd::launcher {
namespace {

RankTable ended(std::initializer_list<int> wait_statuses) {
  RankTable ranks(wait_statuses.size());
  Rank rank{0};
  for (int status : wait_statuses) {
    ranks.end(rank, status);
    ++rank.value;
  }
  return ranks;
}

TEST(Verdict, is_success_if_all_ranks_succeeded_and_nothing_is_left) {
  JobCourse course;
  EXPECT_EQ(verdict_on(course, ended({0, 0})), (JobEnd{0, 0}));
  course.is_all_gone = false;
  EXPECT_EQ(verdict_on(course, ended({0, 0})), (JobEnd{1, 0}));
}

TEST(Verdict, of_a_failure_is_its_code_whatever_came_after) {
  JobCourse course;
  Exited end;
  end.wait_status = W_EXITCODE(7, 0);
  course.first_failure = failure_by_end(end, 4711);
  course.ended_by_signal = SIGINT;
  course.has_lost_reader = true;
  EXPECT_EQ(verdict_on(course, ended({W_EXITCODE(7, 0), SIGTERM})), (JobEnd{7, 0}));
}

TEST(Verdict, asks_for_another_run_if_ranks_do_and_none_has_failed) {
  JobCourse course;
  EXPECT_EQ(verdict_on(course, ended({W_EXITCODE(again_code, 0), 0})), (JobEnd{again_code, 0}));
  EXPECT_EQ(verdict_on(course, ended({W_EXITCODE(again_code, 0), W_EXITCODE(again_code, 0)})), (JobEnd{again_code, 0}));
  course.wants_another_run = true;  // as the keepers report it under a site's launcher
  EXPECT_EQ(verdict_on(course, ended({0})), (JobEnd{again_code, 0}));
}

TEST(Verdict, of_a_signal_is_that_signal_unless_all_ranks_ended_in_their_own_way) {
  JobCourse course;
  course.ended_by_signal = SIGTERM;
  EXPECT_EQ(verdict_on(course, ended({0, SIGTERM})), (JobEnd{128 + SIGTERM, SIGTERM}));
  EXPECT_EQ(verdict_on(course, ended({0, W_EXITCODE(85, 0)})), (JobEnd{85, 0}));
  EXPECT_EQ(verdict_on(course, ended({0, 0})), (JobEnd{0, 0}));
  EXPECT_EQ(verdict_on(course, RankTable(2)), (JobEnd{128 + SIGTERM, SIGTERM}));
}

TEST(Verdict, of_a_signal_under_a_site_launcher_does_not_take_its_code_for_a_ranks) {
  JobCourse course;
  course.ended_by_signal = SIGINT;
  course.is_under_site_launcher = true;
  EXPECT_EQ(verdict_on(course, ended({W_EXITCODE(1, 0)})), (JobEnd{128 + SIGINT, SIGINT}));
  EXPECT_EQ(verdict_on(course, ended({0})), (JobEnd{0, 0}));
  course.site_exit_code = 4;
  EXPECT_EQ(verdict_on(course, ended({W_EXITCODE(4, 0)})), (JobEnd{4, 0}));
}

TEST(Verdict, of_a_lost_reader_is_a_broken_pipe_unless_all_was_done) {
  JobCourse course;
  course.has_lost_reader = true;
  EXPECT_EQ(verdict_on(course, ended({0, SIGTERM})), (JobEnd{128 + SIGPIPE, SIGPIPE}));
  EXPECT_EQ(verdict_on(course, ended({0, 0})), (JobEnd{0, 0}));
}

TEST(Verdict, of_a_killed_agent_is_that_of_a_kill) {
  JobCourse course;
  course.has_lost_agent = true;
  EXPECT_EQ(verdict_on(course, RankTable(2)), (JobEnd{128 + SIGKILL, 0}));
}

TEST(Verdict, of_an_elastic_job_does_not_count_processes_that_it_has_survived) {
  RankTable processes(0);
  for (int number : {0, 1, 2}) processes.admit(Rank{number});
  processes.end(Rank{0}, 0);
  processes.end(Rank{1}, SIGKILL);
  processes.leave_out(Rank{1});
  processes.leave_out(Rank{2});  // it waited for a place, and was ended
  EXPECT_TRUE(processes.have_all_succeeded());
  EXPECT_EQ(verdict_on({}, processes), (JobEnd{0, 0}));
  JobCourse course;
  course.has_failed = true;
  EXPECT_EQ(verdict_on(course, processes), (JobEnd{1, 0}));
  course.has_failed = false;
  course.ended_by_signal = SIGINT;
  EXPECT_EQ(verdict_on(course, processes), (JobEnd{0, 0}));
  processes.leave_out(Rank{0});
  EXPECT_EQ(verdict_on(course, processes), (JobEnd{128 + SIGINT, SIGINT})) << "no process had a rank yet";
}

TEST(RankTable, takes_the_end_of_what_could_not_start_for_no_news) {
  RankTable ranks(2);
  ranks.start(Rank{0}, 4711);
  EXPECT_FALSE(ranks.have_all_started());
  ranks.fail_to_start(Rank{1});
  EXPECT_FALSE(ranks.could_start(Rank{1}));
  EXPECT_TRUE(ranks.could_start(Rank{0}));
  EXPECT_EQ(ranks.process_of(Rank{0}), 4711);
  EXPECT_FALSE(ranks.has(Rank{2}));
  EXPECT_FALSE(ranks.has(Rank{-1}));
}

}  // namespace
}  // namespace hvd::launcher
