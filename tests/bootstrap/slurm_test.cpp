// The ranks of a step of Slurm that meet in a folder, as processes: each counts its meetings.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "bootstrap/selection.hpp"
#include "in_own_folder.hpp"

namespace hvd::bootstrap {
namespace {

constexpr int size = 3;

struct SlurmFolder : testing::InOwnFolder {
  std::unique_ptr<Bootstrap> rank_in_step(int rank) const {
    Environment environment({{"SLURM_JOB_ID", "7"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", std::to_string(rank)},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
                             {"SLURM_NTASKS", std::to_string(size)},
                             {"SLURM_STEP_NUM_NODES", "2"}});
    Config config;
    config.bootstrap = "slurm";
    config.shared_dir = folder_;
    std::vector<Notice> notices;
    auto chosen = choose(environment, config, notices);
    EXPECT_TRUE(chosen) << chosen.error().message;
    return std::move(chosen->bootstrap);
  }

  // Every rank hears what all have put, before a first fence and before a second one, in each of three meetings.
  void meet_three_times() const {
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
  }

  static void meet(Bootstrap& slurm, int rank, const std::string& meeting) {
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
};

TEST_F(SlurmFolder, is_gone_when_the_ranks_have_met_however_often) {
  meet_three_times();
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(SlurmFolder, is_gone_also_where_every_verb_is_traced) {
  log::configure({log::Level::trace});
  meet_three_times();
  log::configure({});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
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
