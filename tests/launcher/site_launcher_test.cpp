#include "launcher/job/site_launcher.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include "launcher/targets/dialects.hpp"
#include "missing_from.hpp"

namespace hvd::launcher {
namespace {

struct Heard {
  std::string ranks, own;
  std::optional<FirstFailure> failure;
};

Heard hear(const SiteDialect& dialect, const std::string& text, Stream stream = Stream::standard_error) {
  SiteOutput output(dialect, 16);
  Heard heard;
  auto print = [&](const Output& line) { heard.ranks += std::to_string(line.rank.value) + "|" + line.bytes; };
  auto say = [&](std::string_view line) { heard.own += std::string(line) + "\n"; };
  for (char letter : text) output.add({Rank{0}, stream, std::string(1, letter)}, print, say);
  output.finish(print, say);
  heard.failure = output.failure();
  return heard;
}

TEST(SiteOutput, of_srun_is_told_apart_by_its_labels) {
  Heard heard = hear(dialect_of_srun, " 8: eight: a\n11: \nsrun: job 4 queued\n 9: 10%\r20%\n7: rest");
  EXPECT_EQ(heard.ranks, "8|eight: a\n11|\n9|10%\r20%\n7|rest");
  EXPECT_EQ(heard.own, "srun: job 4 queued\n");
  EXPECT_FALSE(heard.failure);
}

TEST(SiteOutput, of_srun_tells_who_failed_first) {
  Heard heard = hear(dialect_of_srun,
                     "srun: error: n1: task 2: Exited with exit code 7\nsrun: error: n2: tasks 0-1: Terminated\n");
  ASSERT_TRUE(heard.failure);
  EXPECT_EQ(heard.failure->rank, Rank{2});
  EXPECT_EQ(heard.failure->host, "n1");
  EXPECT_EQ(exit_code_of(*heard.failure), 7);
  heard = hear(dialect_of_srun, "srun: error: node-12: tasks 3,5: Segmentation fault (core dumped)\n");
  ASSERT_TRUE(heard.failure);
  EXPECT_EQ(heard.failure->rank, Rank{3});
  EXPECT_EQ(heard.failure->host, "node-12");
  EXPECT_EQ(exit_code_of(*heard.failure), 128 + SIGSEGV);
  EXPECT_FALSE(hear(dialect_of_srun, "srun: error: Unable to create step for job 6: Invalid task\n").failure);
}

TEST(SiteOutput, of_srun_that_waits_for_another_step_gets_advice) {
  const std::string line = "srun: Job 17 step creation temporarily disabled, retrying (Requested nodes are busy)\n";
  const std::string own = hear(dialect_of_srun, line + "srun: Step created for job 17\n0: a\n").own;
  EXPECT_TRUE(own.starts_with(line + "horovodrun: "));
  EXPECT_EQ(testing::missing_from(own, {"another step of Slurm's job 17", "squeue --steps --jobs 17", "--share"}), "");
  EXPECT_EQ(hear(dialect_of_srun, "0: " + line).own, "");
}

TEST(SiteOutput, of_hydra_is_told_apart_by_its_labels) {
  Heard heard = hear(dialect_of_hydra, "[0] out\n[1] [x] y\n[proxy:0:0@n1] assert failed\n[99] a stranger's\n");
  EXPECT_EQ(heard.ranks, "0|out\n1|[x] y\n");
  EXPECT_EQ(heard.own, "[proxy:0:0@n1] assert failed\n[99] a stranger's\n");
}

TEST(SiteOutput, takes_the_packets_of_keepers_apart) {
  auto packed = [](const std::string& text) {
    std::string packets;
    pack(text, [&](std::string_view packet) { packets += packet; });
    return packets;
  };
  Heard heard = hear(dialect_of_hydra, "[0] " + packed("loss") + "[1] " + packed("50%\r") + "[0] " +
                                           packed(" [1] 0.5\n\nb\n") + "[1] raw\n[0] raw" + packed("no end"));
  EXPECT_EQ(heard.ranks, "0|loss1|50%\r0| [1] 0.5\n\nb\n1|raw\n0|rawno end");
  // A rank of orterun starts another orterun. A read may cut the output of the inner one.
  std::string text = packed("[1,0]<stdout>:a\n");
  heard = hear(dialect_of_open_mpi, "[1,1]<stdout>:" + text.substr(0, 9) + "[1,0]<stdout>:" + packed("x") +
                                        "[1,1]<stdout>:" + text.substr(9));
  EXPECT_EQ(heard.ranks, "0|x1|[1,0]<stdout>:a\n");
}

TEST(SiteOutput, of_hydra_tells_where_a_process_failed) {
  Heard heard = hear(dialect_of_hydra, "=   BAD TERMINATION\n=   PID 664 RUNNING AT n2\n=   EXIT CODE: 9\n");
  ASSERT_TRUE(heard.failure);
  EXPECT_EQ(heard.failure->rank, Rank{-1});
  EXPECT_EQ(heard.failure->host, "n2");
  EXPECT_EQ(heard.failure->process, 664);
  EXPECT_EQ(exit_code_of(*heard.failure), 128 + SIGKILL);
  EXPECT_NE(describe(*heard.failure, {}).find("a rank on host n2 (process 664) was killed"), std::string::npos);
}

TEST(SiteOutput, of_open_mpi_and_prrte_is_told_apart_by_its_tags) {
  Heard heard = hear(dialect_of_open_mpi, "[1,0]<stdout>:out\n[1,12]<stderr>: err\n[n1:1] noise\n");
  EXPECT_EQ(heard.ranks, "0|out\n12| err\n");
  EXPECT_EQ(heard.own, "[n1:1] noise\n");
  heard = hear(dialect_of_prrte, "[prterun-n1-77@1,3]<stdout>: x\n[prterun-n1-77@1,3]<stdout>:  y\n");
  EXPECT_EQ(heard.ranks, "3|x\n3| y\n");
}

TEST(SiteOutput, of_open_mpi_and_prrte_is_joined_where_their_reads_cut_lines) {
  Heard heard =
      hear(dialect_of_open_mpi, "[1,1]<stdout>:a[1,0]<stdout>:whole [1] line\n[1,1]<stdout>:b\n[1,0]<stdout>:end");
  EXPECT_EQ(heard.ranks, "0|whole [1] line\n1|ab\n0|end");
  EXPECT_EQ(hear(dialect_of_open_mpi, "[1,2]<stdout>:a [7,1]<stdout>:b\n").ranks, "2|a [7,1]<stdout>:b\n");
  std::string report = packet_of({645, SIGKILL, false, 2000, "n2"});
  heard = hear(dialect_of_prrte,
               "[x@1,2]<stderr>: " + report.substr(0, 9) + "[x@1,1]<stderr>: y\n[x@1,2]<stderr>: " + report.substr(9));
  EXPECT_EQ(heard.ranks, "1|y\n");
  ASSERT_TRUE(heard.failure);
  EXPECT_EQ(heard.failure->rank, Rank{2});
}

TEST(SiteOutput, of_open_mpi_and_prrte_tells_who_failed_first) {
  Heard heard = hear(dialect_of_open_mpi, "\n  Process name: [[7096,1],3]\n  Exit code:    5\n");
  ASSERT_TRUE(heard.failure);
  EXPECT_EQ(heard.failure->rank, Rank{3});
  EXPECT_EQ(exit_code_of(*heard.failure), 5);
  for (const char* text :
       {"orterun noticed that process rank 1 with PID 645 on node n2 exited on signal 9 (Killed).\n",
        "prterun noticed that process rank 1 with PID 645 on node n2 exited on\nsignal 9 (Killed).\n"}) {
    heard = hear(dialect_of_open_mpi, text);
    ASSERT_TRUE(heard.failure) << text;
    EXPECT_EQ(heard.failure->rank, Rank{1});
    EXPECT_EQ(heard.failure->host, "n2");
    EXPECT_EQ(exit_code_of(*heard.failure), 137);
  }
}

TEST(SiteOutput, has_the_reports_of_keepers_taken_out_of_it) {
  RankReport killed{645, SIGKILL, false, 2000, "n2"}, failed{646, 3 << 8, false, 3000, "n1"};
  RankReport asked{647, SIGTERM, true, 1000, "n1"}, good{648, 0, false, 500, "n1"};
  Heard heard =
      hear(dialect_of_hydra, "[0] half" + packet_of(failed) + "[1] " + packet_of(killed) + "[2] " + packet_of(asked) +
                                 "=   EXIT CODE: 7\n[3] " + packet_of(good) + "[4] nonsense\n");
  EXPECT_EQ(heard.ranks, "0|half4|nonsense\n");
  ASSERT_TRUE(heard.failure);
  EXPECT_EQ(describe(*heard.failure, {}).substr(describe(*heard.failure, {}).find("FIRST")).substr(0, 80),
            "FIRST FAILURE: rank 1 on host n2 (process 645) was killed by signal 9 (SIGKILL)\n");
}

TEST(SiteOutput, tells_of_the_first_rank_that_had_left_with_0_before_the_failure) {
  auto left_before = [](std::initializer_list<RankReport> reports) {
    std::string text;
    for (int rank = 0; const RankReport& report : reports)
      text += "[" + std::to_string(rank++) + "] " + packet_of(report);
    Heard heard = hear(dialect_of_hydra, text);
    return heard.failure ? heard.failure->left_before : "no failure";
  };
  const RankReport failed{640, 1 << 8, false, 2000, "n1"}, asked{641, 0, true, 500, "n1"};
  EXPECT_EQ(left_before({failed, {641, 0, false, 1500, "n1"}, {642, 0, false, 1000, "n2"}}), "rank 2 on host n2");
  EXPECT_EQ(left_before({failed, asked, {642, 0, false, 3000, "n2"}}), "");
}

TEST(SiteOutput, of_open_mpi_and_prrte_tells_that_a_rank_failed_where_it_does_not_tell_which) {
  for (const char* text : {"Primary job  terminated normally, but 1 process returned\na non-zero exit code. Per "
                           "user-direction, the job has been aborted.\n",
                           "Sorry!  You were supposed to get help about:\n    prun:proc-aborted-strsignal\n"}) {
    Heard heard = hear(dialect_of_open_mpi, text);
    ASSERT_TRUE(heard.failure) << text;
    EXPECT_EQ(heard.failure->rank, Rank{-1});
  }
  // This line may arrive before a line that tells more.
  Heard heard = hear(dialect_of_open_mpi,
                     "a non-zero exit code. Per user-direction, the job has been aborted.\n"
                     "orterun noticed that process rank 1 with PID 645 on node n2 exited on signal 9");
  ASSERT_TRUE(heard.failure);
  EXPECT_EQ(heard.failure->rank, Rank{1});
  EXPECT_EQ(exit_code_of(*heard.failure), 137);
  EXPECT_FALSE(hear(dialect_of_open_mpi, "[n1:04640] PMIX ERROR: BAD-PARAM in file x.c at line 1033\n").failure);
}

}  // namespace
}  // namespace hvd::launcher
