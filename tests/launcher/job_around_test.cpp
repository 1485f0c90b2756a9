#include "launcher/targets/job_around.hpp"

#include <gtest/gtest.h>

#include <map>

#include "missing_from.hpp"
namespace hvd::launcher {
namespace {

using testing::missing_from;

JobAround lsf_job(const std::string& hosts) {
  return JobAround(Environment({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", hosts}, {"PATH", "/no/such/folder"}}));
}

std::string shares(const JobAround& job, int ranks, bool may_share = false) {
  auto hosts = job.share_out(ranks, may_share);
  if (!hosts) return hosts.error().message;
  std::string text;
  for (const HostSlots& host : *hosts) text += (text.empty() ? "" : " ") + host.host + ":" + std::to_string(host.slots);
  return text;
}

TEST(JobAround, has_as_many_slots_as_its_scheduler_says) {
  EXPECT_EQ(*lsf_job("n1 2 n2 4").slots(), 6);
  EXPECT_FALSE(lsf_job("n1 2 n2").slots());
  EXPECT_FALSE(JobAround(Environment()).is_a_job());
  EXPECT_TRUE(lsf_job("n1 2").is_of("lsf"));
}

TEST(JobAround, is_not_asked_for_a_scheduler_that_there_is_not) {
  EXPECT_DEATH((void)lsf_job("n1 2").is_of("lfs"), "there is no scheduler 'lfs'");
}

TEST(JobAround, shares_ranks_out_over_all_of_its_hosts) {
  JobAround even = lsf_job("n1 4 n2 4"), uneven = lsf_job("n1 2 n2 4 n3 1");
  EXPECT_EQ(shares(even, 8), "n1:4 n2:4");
  EXPECT_EQ(shares(even, 4), "n1:2 n2:2");
  EXPECT_EQ(shares(even, 3), "n1:2 n2:1");
  EXPECT_EQ(shares(even, 1), "n1:1");
  EXPECT_EQ(shares(uneven, 7), "n1:2 n2:4 n3:1");
  EXPECT_EQ(shares(uneven, 6), "n1:2 n2:3 n3:1");
  EXPECT_EQ(shares(uneven, 2), "n1:1 n2:1");
}

TEST(JobAround, with_too_few_slots_names_both_numbers_and_the_scheduler) {
  EXPECT_EQ(missing_from(shares(lsf_job("n1 2 n2 1"), 4), {"-np 4", "job 7", "LSF", "3", "n1:2, n2:1", "LSB_MCPU_HOSTS",
                                                           "bsub -n 4", "--oversubscribe"}),
            "");
  EXPECT_EQ(shares(lsf_job("n1 2 n2 1"), 7, true), "n1:5 n2:2");
}

TEST(JobAround, refuses_hosts_of_others) {
  JobAround job = lsf_job("n1.site 2 n2 1");
  EXPECT_TRUE(job.check_hosts({{"n1", 1}, {"n2", 1}}));
  auto refused = job.check_hosts({{"n3", 1}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(missing_from(refused.error().message, {"n3", "job 7", "LSF", "n1.site:2, n2:1"}), "");
}

TEST(JobAround, has_its_own_name_for_a_host) {
  JobAround job = lsf_job("n1.site 2 n2 1");
  EXPECT_EQ(job.name_of("n1"), "n1.site");
  EXPECT_EQ(job.name_of("n2.site"), "n2");
  EXPECT_EQ(job.name_of("n3"), std::nullopt);
}

TEST(JobAround, of_many_hosts_is_described_in_a_line) {
  std::string hosts;
  for (int at = 1; at <= 900; ++at) hosts += "n" + std::to_string(at) + " 2 ";
  EXPECT_EQ(lsf_job(hosts).description(),
            "900 hosts with 1800 slots (n1:2, n2:2, n3:2, n4:2, n5:2, n6:2, n7:2, … n900:2)");
  EXPECT_EQ(lsf_job("n1 1").description(), "1 host with 1 slot (n1:1)");
}

}  // namespace
}  // namespace hvd::launcher
