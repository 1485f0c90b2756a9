#include "bootstrap/launch/owner.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/posix/processes/process.hpp"

namespace hvd::bootstrap {
namespace {

using Names = std::map<std::string, std::string, std::less<>>;

const Names of_horovodrun = {{"HOROVOD_RANK", "1"},
                             {"HOROVOD_SIZE", "2"},
                             {"HOROVOD_LOCAL_RANK", "1"},
                             {"HOROVOD_ELASTIC", "1"},
                             {"HOROVOD_ELASTIC_PROCESS", "1"},
                             {"HOROVOD_ELASTIC_SLOT", "1"},
                             {"HOROVOD_LOCAL_STORE", "@1"},
                             {"HOROVOD_LOCAL_STORE_SECRET", "00"},
                             {"PMIX_NAMESPACE", "horovodrun-1"},
                             {"PMIX_RANK", "1"},
                             {"PATH", "/bin"}};

std::vector<posix::Ancestor> no_launcher_above() {
  return {};
}
std::vector<posix::Ancestor> mpiexec_below_the_parent() {
  return {{1, "hydra_pmi_proxy", "", {}}, {1, "mpiexec.hydra", "", {}}, {::getppid(), "python", "", {}}};
}
std::vector<posix::Ancestor> mpiexec_above_the_parent() {
  return {{1, "bash", "", {}}, {::getppid(), "python", "", {}}, {1, "mpiexec.hydra", "", {}}};
}

// The environment that a process inherits from a parent that has marked it.
Environment marked_by_parent(const Names& names, bool has_left = false) {
  Environment environment(names);
  std::string mark = owner_mark(environment, has_left);
  std::string mine = std::to_string(::getpid()) + ":" + std::to_string(*posix::began_at(::getpid()));
  std::string theirs = std::to_string(::getppid()) + ":" + std::to_string(*posix::began_at(::getppid()));
  EXPECT_TRUE(mark.starts_with(mine + ":")) << mark;
  environment.set(owner_variable, theirs + mark.substr(mine.size()));
  return environment;
}

TEST(Owner, of_a_place_is_the_process_above_that_has_joined) {
  EXPECT_EQ(owner_of_place(marked_by_parent(of_horovodrun), &no_launcher_above), ::getppid());
  EXPECT_EQ(owner_of_place(marked_by_parent(of_horovodrun), &mpiexec_above_the_parent), ::getppid());
  EXPECT_EQ(owner_of_place(Environment(of_horovodrun), &no_launcher_above), 0);
}

TEST(Owner, may_come_again) {
  Environment environment(of_horovodrun);
  environment.set(owner_variable, owner_mark(environment));
  EXPECT_EQ(owner_of_place(environment, &no_launcher_above), 0);
  EXPECT_EQ(of_this_launch(environment, &mpiexec_below_the_parent).variables(), environment.variables());
}

TEST(Owner, that_has_left_lets_others_in) {
  EXPECT_EQ(owner_of_place(marked_by_parent(of_horovodrun, true), &no_launcher_above), 0);
}

TEST(Owner, is_a_process_and_no_number) {
  Environment environment = marked_by_parent(of_horovodrun);
  std::string mark = *environment.get(owner_variable);
  std::size_t first = mark.find(':'), second = mark.find(':', first + 1);
  auto with = [&](const std::string& text) {
    environment.set(owner_variable, text);
    return owner_of_place(environment, &no_launcher_above);
  };
  EXPECT_EQ(with(mark), ::getppid());
  EXPECT_EQ(with(mark.substr(0, first) + ":1" + mark.substr(second)), 0) << "began at another time";
  pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  std::uint64_t began = *posix::began_at(child);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(with(std::to_string(child) + ":" + std::to_string(began) + mark.substr(second)), 0) << "has ended";
  for (const char* text : {"", "12", "1:2:3:4:5:6:7", "x:1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9"})
    EXPECT_EQ(with(text), 0) << text;
}

// A build that knows other launchers hashes other variables.
TEST(Owner, with_a_mark_of_another_format_counts_as_none) {
  Environment environment = marked_by_parent(of_horovodrun);
  environment.set("SLURM_STEP_ID", "7");
  ASSERT_FALSE(of_this_launch(environment, &no_launcher_above).has("HOROVOD_RANK")) << "another launch";
  std::string mark = *environment.get(owner_variable);
  const std::size_t format = mark.find(posix::process_space()) + posix::process_space().size() + 1;
  for (const std::string& other : {mark.substr(0, format) + "1" + mark.substr(mark.find(':', format)),
                                   mark.substr(0, format) + mark.substr(mark.find(':', format) + 1)}) {
    environment.set(owner_variable, other);
    EXPECT_EQ(of_this_launch(environment, &no_launcher_above).variables(), environment.variables()) << other;
    EXPECT_EQ(owner_of_place(environment, &no_launcher_above), 0) << other;
  }
}

TEST(Owner, elsewhere_is_known_by_the_launch_unless_that_has_mere_numbers) {
  for (bool of_hydra : {false, true}) {
    Names names = of_horovodrun;
    if (of_hydra) names.insert({{"PMI_FD", "6"}, {"PMI_RANK", "0"}});
    Environment environment = marked_by_parent(names);
    std::string mark = *environment.get(owner_variable), here = posix::process_space();
    environment.set(owner_variable, mark.replace(mark.find(here), here.size(), "elsewhere"));
    EXPECT_EQ(owner_of_place(environment, &no_launcher_above), of_hydra ? 0 : ::getppid());
    environment.set("SLURM_STEP_ID", "7");
    EXPECT_EQ(owner_of_place(environment, &no_launcher_above), 0);
  }
}

TEST(Owner, of_another_launch_is_none_of_ours) {
  Environment environment = marked_by_parent(of_horovodrun);
  EXPECT_EQ(owner_of_place(environment, &mpiexec_below_the_parent), 0) << "a launcher in between";
  environment.set("SLURM_STEP_ID", "7");
  EXPECT_EQ(owner_of_place(environment, &no_launcher_above), 0) << "a step of srun";
}

TEST(Owner, knows_another_launch_by_each_variable_of_every_launcher) {
  for (const LauncherRow& row : launchers()) {
    if (row.serves == Serves::nothing) continue;
    for (const auto& names : {row.ranks, row.of_launch})
      for (const char* name : names) {
        Environment environment = marked_by_parent(of_horovodrun);
        environment.set(name, "7");
        EXPECT_EQ(owner_of_place(environment, &no_launcher_above), 0) << row.name << ": " << name;
      }
  }
}

TEST(Owner, needs_no_mark_where_a_step_of_slurm_is_inside_of_another) {
  Environment inner({{"SLURM_JOB_ID", "7"},
                     {"SLURM_STEP_ID", "1"},
                     {"PMIX_NAMESPACE", "slurm.pmix.7.1"},
                     {"PMI_JOBID", "7.0"},
                     {"PMI_FD", "11"}});
  EXPECT_FALSE(of_this_launch(inner, &no_launcher_above).has("PMI_FD"));
  EXPECT_TRUE(of_this_launch(inner, &no_launcher_above).has("PMIX_NAMESPACE"));
  inner.set("PMI_JOBID", "7.1");
  EXPECT_TRUE(of_this_launch(inner, &no_launcher_above).has("PMI_FD"));
}

TEST(Owner, leaves_variables_that_another_launch_does_not_go_by) {
  for (bool has_left : {false, true}) {
    Environment environment = marked_by_parent(of_horovodrun, has_left);
    EXPECT_EQ(of_this_launch(environment, &no_launcher_above).variables(), environment.variables())
        << "the same launch";
    environment.set("SLURM_STEP_ID", "7");
    Environment own = of_this_launch(environment, &no_launcher_above);
    for (const auto& [name, value] : of_horovodrun) EXPECT_EQ(own.has(name), name == "PATH") << name;
    EXPECT_TRUE(own.has("SLURM_STEP_ID"));
    environment.set("PMIX_NAMESPACE", "slurm.pmix.1.7");
    own = of_this_launch(environment, &no_launcher_above);
    EXPECT_FALSE(own.has("HOROVOD_RANK"));
    EXPECT_EQ(own.get("PMIX_NAMESPACE"), "slurm.pmix.1.7");
    EXPECT_TRUE(own.has("PMIX_RANK"));
  }
}

}  // namespace
}  // namespace hvd::bootstrap
