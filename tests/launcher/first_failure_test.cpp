#include "launcher/job/first_failure.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

namespace hvd::launcher {
namespace {

FirstFailure ended(int wait_status) {
  FirstFailure failure;
  failure.rank = Rank{3};
  failure.host = "n12";
  failure.process = 4711;
  failure.end.wait_status = wait_status;
  return failure;
}

TEST(FirstFailure, names_rank_host_process_code_and_last_words) {
  std::string text = describe(ended(W_EXITCODE(7, 0)), {"Traceback", "ValueError: x"});
  EXPECT_NE(text.find("FIRST FAILURE: rank 3 on host n12 (process 4711) ended with exit code 7"), std::string::npos);
  EXPECT_NE(text.find("\n    | Traceback\n    | ValueError: x"), std::string::npos);
  EXPECT_EQ(text.rfind("Horovod detected that one or more processes exited with non-zero status", 0), 0u);
  EXPECT_EQ(exit_code_of(ended(W_EXITCODE(7, 0))), 7);
}

TEST(FirstFailure, that_may_follow_from_a_rank_that_had_left_with_0_names_that_rank) {
  FirstFailure failure = ended(W_EXITCODE(1, 0));
  EXPECT_EQ(describe(failure, {}).find("exit code 0"), std::string::npos);
  failure.left_before = "rank 2 on host n1";
  EXPECT_NE(describe(failure, {}).find("\n  rank 2 on host n1 had ended with exit code 0 before"), std::string::npos);
  failure.kind = FirstFailure::Kind::asked_for_end;
  EXPECT_NE(describe(failure, {}).find("rank 2 on host n1"), std::string::npos);
  FirstFailure killed = ended(SIGKILL);
  killed.left_before = failure.left_before;
  EXPECT_EQ(describe(killed, {}).find("rank 2"), std::string::npos);
}

TEST(FirstFailure, of_a_process_that_has_had_no_rank_names_no_rank) {
  FirstFailure failure = ended(W_EXITCODE(2, 0));
  failure.rank = Rank{-1};
  EXPECT_EQ(exit_code_line(failure), "Process unknown exit with status code 2.");
  EXPECT_EQ(describe(failure, {}).find("-1"), std::string::npos);
}

TEST(FirstFailure, blames_the_memory_only_if_the_killer_struck) {
  FirstFailure failure = ended(SIGKILL);
  EXPECT_EQ(exit_code_of(failure), 137);
  EXPECT_NE(describe(failure, {}).find("does not tell which"), std::string::npos);
  failure.end.group_known = true;
  failure.end.group = "/job_7";
  failure.end.limit_bytes = 4ull << 30;
  std::string sent = describe(failure, {});
  EXPECT_NE(sent.find("was killed by signal 9 (SIGKILL)"), std::string::npos);
  EXPECT_NE(sent.find("not the out-of-memory killer of this cgroup (/job_7"), std::string::npos);
  failure.end.oom_kills = 2;
  std::string memory = describe(failure, {});
  EXPECT_NE(memory.find("struck 2 times in this memory control group (/job_7)"), std::string::npos);
  EXPECT_NE(memory.find("4.0 GiB (4294967296 bytes)"), std::string::npos);
}

TEST(FirstFailure, of_a_crash_is_no_matter_of_memory) {
  std::string text = describe(ended(SIGSEGV | 0x80), {});
  EXPECT_NE(text.find("was killed by signal 11 (SIGSEGV)"), std::string::npos);
  EXPECT_EQ(text.find("likely reason"), std::string::npos);
  EXPECT_EQ(exit_code_of(ended(SIGSEGV | 0x80)), 139);
}

FirstFailure ended(int rank, int wait_status, std::int64_t at_ns) {
  FirstFailure failure;
  failure.rank = Rank{rank};
  failure.end.wait_status = wait_status;
  failure.end.at_ns = at_ns;
  return failure;
}

TEST(FirstFailure, of_several_hosts_is_the_one_that_the_others_follow_from) {
  constexpr int exited_with_1 = 1 << 8;
  EXPECT_EQ(likely_cause({ended(1, exited_with_1, 30), ended(2, exited_with_1, 20)}).rank, Rank{2});
  EXPECT_EQ(likely_cause({ended(1, exited_with_1, 10), ended(2, SIGKILL, 20)}).rank, Rank{2});
  FirstFailure lost;
  lost.kind = FirstFailure::Kind::host_lost;
  lost.rank = Rank{3};
  EXPECT_EQ(likely_cause({ended(2, SIGKILL, 20), lost}).rank, Rank{3});
}

}  // namespace
}  // namespace hvd::launcher
