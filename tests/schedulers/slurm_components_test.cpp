#include "schedulers/slurm/components.hpp"

#include <gtest/gtest.h>

#include <map>

#include "schedulers/slurm/step.hpp"

namespace hvd::schedulers {
namespace {

std::string shares(std::map<std::string, std::string, std::less<>> variables, int ranks) {
  auto components = components_of_job(Environment(std::move(variables)));
  share_out(components, ranks);
  std::string text;
  for (const SlurmComponent& component : components) text += " " + std::to_string(component.ranks);
  return text;
}

TEST(SlurmComponents, get_ranks_as_they_have_tasks_then_as_they_have_room) {
  std::map<std::string, std::string, std::less<>> two = {{"SLURM_HET_SIZE", "2"},
                                                         {"SLURM_NTASKS", "3"},
                                                         {"SLURM_NTASKS_HET_GROUP_0", "2"},
                                                         {"SLURM_NTASKS_HET_GROUP_1", "1"},
                                                         {"SLURM_CPUS_PER_TASK_HET_GROUP_1", "2"},
                                                         {"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0", "4"},
                                                         {"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1", "8(x2)"}};
  EXPECT_EQ(shares(two, 1), " 1 0");
  EXPECT_EQ(shares(two, 3), " 2 1");
  EXPECT_EQ(shares(two, 6), " 4 2");
  EXPECT_EQ(shares(two, 12), " 4 8");
  EXPECT_EQ(shares(two, 15), " 7 8");
  EXPECT_EQ(shares({{"SLURM_JOB_CPUS_PER_NODE", "2"}}, 5), " 5");
  EXPECT_EQ(shares({}, 5), " 5");
  // In a step SLURM_NTASKS is the step's number of tasks, not the job's.
  auto components = components_of_job(
      Environment({{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "9"}, {"SLURM_JOB_CPUS_PER_NODE", "2(x2)"}}));
  EXPECT_EQ(components[0].room, 4);
}

TEST(SlurmComponents, of_the_job_that_submitted_this_one_are_kept_from_srun) {
  auto kept = [](std::string number) {
    return variables_of_slurm_step(Environment({{"SLURM_JOB_ID", std::move(number)},
                                                {"SLURM_HET_SIZE", "2"},
                                                {"SLURM_JOB_ID_HET_GROUP_0", "20"},
                                                {"PATH", "/"}}));
  };
  EXPECT_EQ(kept("22"), (std::vector<std::string>{"SLURM_HET_SIZE", "SLURM_JOB_ID_HET_GROUP_0"}));
  EXPECT_TRUE(kept("21").empty());
}

TEST(SlurmComponents, know_hosts_that_are_not_in_the_order_of_their_names) {
  auto said = [](const std::vector<std::string>& lists, int ranks) {
    std::map<std::string, std::string, std::less<>> variables = {{"SLURM_HET_SIZE", std::to_string(lists.size())}};
    for (std::size_t at = 0; at < lists.size(); ++at) {
      variables["SLURM_JOB_NODELIST_HET_GROUP_" + std::to_string(at)] = lists[at];
      variables["SLURM_NTASKS_HET_GROUP_" + std::to_string(at)] = "1";
    }
    auto components = components_of_job(Environment(std::move(variables)));
    share_out(components, ranks);
    return out_of_order(components);
  };
  EXPECT_EQ(said({"n1", "n2"}, 2), "");
  EXPECT_EQ(said({"n[1-2]", "n2", "n[9-10]", "p1"}, 4), "");
  EXPECT_EQ(said({"n2", "n1"}, 2), "n2, n1");
  EXPECT_EQ(said({"n[1,3]", "n2"}, 2), "n3, n2");
  EXPECT_EQ(said({"n10", "n9"}, 2), "n10, n9");
  EXPECT_EQ(said({"n2", "n1"}, 1), "");                // the second component has no rank
  EXPECT_EQ(said({"x1c0s10b0n0,x1c0s2b0n0"}, 2), "");  // a job of one component, in Slurm's order
}

}  // namespace
}  // namespace hvd::schedulers
