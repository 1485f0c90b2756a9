#include "schedulers/slurm/components.hpp"

#include <gtest/gtest.h>

#include <map>

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

}  // namespace
}  // namespace hvd::schedulers
