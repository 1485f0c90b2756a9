// The ranks of a step of Slurm that meet in a folder, as processes: each counts its meetings.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/registry.hpp"

namespace hvd::bootstrap {
namespace {

constexpr int size = 3;

std::unique_ptr<Bootstrap> slurm_of_the_registry() {
  for (const Maker& maker : registry())
    if (std::string_view(maker.name) == "slurm") return maker.make();
  return nullptr;
}

struct SlurmFolder : testing::Test {
  void SetUp() override { ASSERT_NE(::mkdtemp(place.data()), nullptr); }
  void TearDown() override { std::filesystem::remove_all(place); }

  std::unique_ptr<Bootstrap> rank_in_step(int rank) const {
    Environment environment({{"SLURM_JOB_ID", "7"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", std::to_string(rank)},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
                             {"SLURM_NTASKS", std::to_string(size)},
                             {"SLURM_STEP_NUM_NODES", "2"}});
    Config config;
    config.shared_dir = place;
    auto slurm = slurm_of_the_registry();
    auto identity = slurm->join(environment, config);
    EXPECT_TRUE(identity) << identity.error().message;
    return slurm;
  }

  std::string place = testing::TempDir() + "slurm.XXXXXX";
};

// Every rank hears what all have put, before a first fence and before a second one.
void meet(Bootstrap& slurm, int rank, const std::string& meeting) {
  for (const char* fence : {"first", "second"}) {
    std::string key = meeting + fence, value = key + std::to_string(rank);
    ASSERT_TRUE(slurm.put(key, as_bytes(value)));
    auto done = slurm.fence(Deadline::after(std::chrono::seconds(60)));
    ASSERT_TRUE(done) << done.error().message;
    for (int other = 0; other < size; ++other) {
      auto got = slurm.get(Rank{other}, key, Deadline::never());
      ASSERT_TRUE(got) << got.error().message;
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(got->data()), got->size()), key + std::to_string(other));
    }
  }
  slurm.tidy_up();
}

TEST_F(SlurmFolder, is_gone_when_the_ranks_have_met_however_often) {
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(::fork());
    if (ranks.back() != 0) continue;
    auto slurm = rank_in_step(rank);
    for (const char* meeting : {"a", "b", "c"}) meet(*slurm, rank, meeting);
    ::_exit(HasFailure() ? 1 : 0);
  }
  for (pid_t rank : ranks) {
    int status = -1;
    EXPECT_EQ(::waitpid(rank, &status, 0), rank);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(std::filesystem::is_empty(place));
}

TEST_F(SlurmFolder, tells_whom_nothing_came_from) {
  auto slurm = rank_in_step(0);
  auto done = slurm->fence(Deadline::after(std::chrono::milliseconds(1)));
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("nothing came from 2 ranks, among them 1, 2"), std::string::npos)
      << done.error().message;
}

}  // namespace
}  // namespace hvd::bootstrap
