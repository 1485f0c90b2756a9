// The stall watch: the times at which a rank looks for operations that have waited too long, and its verdict on them.
#include "runtime/agreement/stall.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "made_up_world.hpp"

namespace hvd::runtime {
namespace {

using Verdict = StallWatch::Verdict;

const Clock::time_point start{std::chrono::hours(1)};
Clock::time_point at(int seconds) {
  return start + std::chrono::seconds(seconds);
}
Config with(double check_s, double shutdown_s) {
  Config config;
  config.stall_check_time_s = check_s;
  config.stall_shutdown_time_s = shutdown_s;
  return config;
}

TEST(StallWatch, reports_what_waits_once_per_check_time_although_other_things_begin) {
  StallWatch watch(with(60, 0));
  EXPECT_EQ(watch.until_due(at(0)), posix::WaitWord::forever);
  int reports = 0;
  for (int second = 0; second < 200; ++second) {
    watch.begun(at(second));  // another operation begins in every second
    if (!watch.is_due(at(second))) continue;
    if (watch.look(at(0), at(second)) == Verdict::report) ++reports;
  }
  EXPECT_EQ(reports, 3);
}

TEST(StallWatch, is_content_with_what_moves) {
  StallWatch watch(with(60, 100));
  for (int second = 0; second < 1000; ++second) {
    watch.begun(at(second));
    if (!watch.is_due(at(second))) continue;
    EXPECT_EQ(watch.look(at(second - 1), at(second)), Verdict::fine);
  }
  EXPECT_EQ(watch.look(std::nullopt, at(1000)), Verdict::fine);
  EXPECT_EQ(watch.until_due(at(1000)), posix::WaitWord::forever);
}

// Returns the verdicts of all looks until `end`, for an operation that waits since at(0): r(eport), e(nd). The process
// is stopped for a while meanwhile.
std::string verdicts(StallWatch& watch, Clock::time_point end, Clock::time_point stopped = at(1000),
                     Clock::time_point continued = at(1000)) {
  std::string told;
  watch.begun(at(0));
  for (Clock::time_point now = at(0); now <= end; now += watch.until_due(now)) {
    if (now > stopped) now = std::max(now, continued);
    if (!watch.is_due(now)) continue;
    Verdict verdict = watch.look(at(0), now);
    if (verdict != Verdict::fine) told += verdict == Verdict::end ? 'e' : 'r';
  }
  return told;
}

TEST(StallWatch, ends_what_waits_for_longer_than_a_job_may_and_says_so_again) {
  StallWatch watch(with(2, 5));
  EXPECT_EQ(verdicts(watch, at(7)), "rreee");
}

TEST(StallWatch, does_not_count_the_time_in_which_its_own_process_was_stopped) {
  StallWatch watch(with(2, 5));
  EXPECT_EQ(verdicts(watch, at(101), at(1), at(100)), "");
  StallWatch goes_on(with(2, 5));
  EXPECT_EQ(verdicts(goes_on, at(105), at(1), at(100)).substr(0, 3), "rre") << "counted from second 100 on";
  StallWatch slow(with(60, 600));
  EXPECT_EQ(verdicts(slow, at(4000), at(590), at(3990)), std::string(9, 'r'));
}

TEST(StallWatch, reports_nothing_with_a_check_time_of_0_and_may_still_end_the_job) {
  StallWatch off(with(0, 0));
  off.begun(at(0));
  EXPECT_EQ(off.until_due(at(0)), posix::WaitWord::forever);
  EXPECT_FALSE(off.is_due(at(1000)));
  StallWatch ends(with(0, 5));
  ends.begun(at(0));
  EXPECT_EQ(verdicts(ends, at(4)), "");
  EXPECT_EQ(verdicts(ends, at(5)), "e");
  Config disabled = with(1, 1);
  disabled.stall_check_disable = true;
  StallWatch none(disabled);
  none.begun(at(0));
  EXPECT_FALSE(none.is_due(at(1000)));
}

TEST(Stalls, know_nothing_of_a_process_in_another_pid_namespace) {
  pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  World world = testing::made_up_world({2});
  world.members[1].pid = ended;
  EXPECT_EQ(what_it_does(world, Rank{1}), ", process has ended");
  world.members[1].process_space = "another";
  EXPECT_EQ(what_it_does(world, Rank{1}), "");
}

}  // namespace
}  // namespace hvd::runtime
