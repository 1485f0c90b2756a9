// Ranks of a Slurm step that meet in a shared folder. Each rank is a process. The number of its meetings is counted.
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "bootstrap/selection/selection.hpp"
#include "in_own_folder.hpp"

namespace hvd::bootstrap {
namespace {

constexpr int size = 5;

struct SlurmFolder : testing::InOwnFolder {
  // A rank, the ranks of its node in order, and additional variables of its environment.
  struct Task {
    int rank = 0;
    std::string node;  // the value of SLURM_GTIDS
    int place = 0;     // the value of SLURM_LOCALID
    std::vector<std::pair<std::string, std::string>> besides{};
  };
  static std::vector<Task> one_task_a_node() {
    std::vector<Task> tasks;
    for (int rank = 0; rank < size; ++rank) tasks.push_back({rank, std::to_string(rank), 0});
    return tasks;
  }
  static std::vector<Task> two_tasks_a_node() {
    return {{0, "0,1", 0}, {1, "0,1", 1}, {2, "2,3", 0}, {3, "2,3", 1}, {4, "4", 0}};
  }

  std::unique_ptr<Bootstrap> rank_in_step(const Task& task) const {
    Environment environment({{"SLURM_JOB_ID", "7"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_PROCID", std::to_string(task.rank)},
                             {"SLURM_LOCALID", std::to_string(task.place)},
                             {"SLURM_GTIDS", task.node},
                             {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
                             {"SLURM_NTASKS", std::to_string(size)},
                             {"SLURM_STEP_NUM_NODES", "2"}});
    for (const auto& [name, value] : task.besides) environment.set(name, value);
    Config config;
    config.bootstrap = "slurm";
    config.shared_dir = folder_;
    std::vector<Notice> notices;
    auto chosen = choose(environment, config, notices);
    EXPECT_TRUE(chosen) << chosen.error().message;
    return std::move(chosen->bootstrap);
  }

  // Runs every task in its own process.
  void run(const std::vector<Task>& tasks, const std::function<void(Bootstrap&, int rank)>& body) const {
    std::vector<pid_t> ranks;
    for (const Task& task : tasks) {
      ranks.push_back(::fork());
      if (ranks.back() != 0) continue;
      auto slurm = rank_in_step(task);
      body(*slurm, task.rank);
      slurm.reset();
      ::_exit(HasFailure() ? 1 : 0);
    }
    for (pid_t rank : ranks) {
      int status = -1;
      EXPECT_EQ(::waitpid(rank, &status, 0), rank);
      EXPECT_EQ(status, 0);
    }
  }

  // In each of three meetings every rank reads what all ranks have put before a first fence and before a second one.
  void meet_three_times(const std::vector<Task>& tasks) const {
    run(tasks, [](Bootstrap& slurm, int rank) {
      for (const char* meeting : {"a", "b", "c"}) meet(slurm, rank, meeting);
    });
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
  meet_three_times(one_task_a_node());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(SlurmFolder, is_gone_also_where_every_verb_is_traced) {
  log::configure({log::Level::trace});
  meet_three_times(one_task_a_node());
  log::configure({});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(SlurmFolder, has_one_file_of_every_node) {
  int rank_0_has_looked[2];
  ASSERT_EQ(::pipe(rank_0_has_looked), 0);
  run(two_tasks_a_node(), [&](Bootstrap& slurm, int rank) {
    auto cards = *slurm.exchange("card", {"same", std::to_string(rank)}, Deadline::after(std::chrono::seconds(60)));
    ASSERT_TRUE(cards) << cards.error().message;
    for (int other = 0; other < size; ++other) {
      ASSERT_EQ(cards->of(Rank{other}).texts.size(), 2u);
      EXPECT_EQ(cards->of(Rank{other}).texts[1], std::to_string(other));
    }
    char others[size - 1] = {};
    if (rank != 0) {  // a node removes its file when it ends
      EXPECT_EQ(::read(rank_0_has_looked[0], others, 1), 1);
      return;
    }
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
      if (entry.is_regular_file() && entry.path().parent_path().filename() == "in")
        files.insert(entry.path().filename());
    EXPECT_EQ(files, (std::set<std::string>{"0.2", "0.4"}));
    EXPECT_EQ(::write(rank_0_has_looked[1], others, sizeof others), std::ssize(others));
  });
  ::close(rank_0_has_looked[0]);
  ::close(rank_0_has_looked[1]);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  meet_three_times(two_tasks_a_node());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(SlurmFolder, is_the_same_for_the_components_of_a_heterogeneous_job) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const Variables first = {{"SLURM_HET_SIZE", "2"}, {"SLURM_HET_JOB_ID", "7"}, {"SLURM_SRUN_COMM_PORT", "4711"}};
  const Variables second = {
      {"SLURM_HET_SIZE", "2"}, {"SLURM_HET_JOB_ID", "7"}, {"SLURM_JOB_ID", "8"}, {"SLURM_SRUN_COMM_PORT", "4712"}};
  meet_three_times(
      {{0, "0,1", 0, first}, {1, "0,1", 1, first}, {2, "0,1", 0, second}, {3, "0,1", 1, second}, {4, "4", 0, second}});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(SlurmFolder, has_the_name_of_the_job_and_not_of_the_components_that_submitted_it) {
  auto slurm = rank_in_step({0, "0", 0, {{"SLURM_HET_SIZE", "2"}, {"SLURM_HET_JOB_ID", "4"}}});
  const std::string name = std::filesystem::directory_iterator(folder_)->path().filename();
  EXPECT_TRUE(name.starts_with(".horovod-slurm-7-0-0-0-")) << name;
}

TEST_F(SlurmFolder, tells_whom_nothing_came_from) {
  auto slurm = rank_in_step({0, "0,1", 0});
  auto done = slurm->fence(Deadline::after(std::chrono::milliseconds(1)));
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("Of 5 ranks 4 did not come to the meeting: 1, 2, 3, 4"), std::string::npos)
      << done.error().message;
}

TEST_F(SlurmFolder, is_gone_when_not_all_ranks_came) {
  for (int missing : {0, 2, 4}) {
    auto tasks = two_tasks_a_node();
    tasks.erase(tasks.begin() + missing);
    run(tasks, [](Bootstrap& slurm, int) {
      EXPECT_FALSE(slurm.fence(Deadline::after(std::chrono::milliseconds(50))));
      slurm.tidy_up();
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "without rank " << missing;
  }
}

TEST_F(SlurmFolder, is_gone_when_nobody_came_to_the_meeting) {
  run(two_tasks_a_node(), [](Bootstrap&, int) {});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace hvd::bootstrap
