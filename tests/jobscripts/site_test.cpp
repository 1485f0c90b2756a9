#include "jobscripts/site.hpp"

#include <gtest/gtest.h>

#include <random>
#include <tuple>

namespace hvd::jobscripts {
namespace {

TEST(Sites, that_come_with_horovod_can_be_read) {
  EXPECT_GE(compiled_sites().size(), 9u);
  for (auto [name, text] : compiled_sites()) {
    auto site = find_site(name);
    ASSERT_TRUE(site) << site.error().message;
    EXPECT_NE(site->get("title"), "") << name;
  }
}

TEST(Sites, that_are_unknown_are_answered_with_the_list) {
  auto site = find_site("sumit");
  ASSERT_FALSE(site);
  for (const char* name : {"sumit", "summit", "perlmutter", "./my.site"})
    EXPECT_NE(site.error().message.find(name), std::string::npos) << site.error().message;
}

TEST(Sites, of_a_file_are_lines_of_keys_and_values) {
  auto site = parse_site("# mine\n\n title = My cluster \r\nscheduler=slurm\nmodule = a\nmodule = b/1.0\n", "mine");
  ASSERT_TRUE(site) << site.error().message;
  EXPECT_EQ(site->get("title"), "My cluster");
  EXPECT_EQ(site->values["module"], (std::vector<std::string>{"a", "b/1.0"}));
  EXPECT_EQ(site->number("gpus_per_node", 7), 7);
}

TEST(Sites, of_a_file_may_have_values_by_the_number_of_nodes) {
  auto site =
      parse_site("scheduler = pbs\nqueue = small to 9 nodes\nqueue = middle to 99 nodes\nqueue = large\n", "mine");
  ASSERT_TRUE(site) << site.error().message;
  for (auto [nodes, queue] : {std::pair(1, "small"), std::pair(9, "small"), std::pair(10, "middle"),
                              std::pair(99, "middle"), std::pair(100, "large")})
    EXPECT_EQ(site->get_for("queue", nodes), queue) << nodes;
  EXPECT_EQ(site->get_for("longest", 1), "");
  EXPECT_EQ(parse_site("scheduler = pbs\nqueue = small to 9 nodes\n", "mine")->get_for("queue", 10), "");
}

TEST(Sites, that_are_wrong_are_named_with_the_line) {
  for (const char* line : {"titel = x",
                           "title",
                           "title =",
                           "scheduler = slurm",
                           "gpus_per_node = four",
                           "gpus_per_node = -1",
                           "= x",
                           "cpus_per_core = 0",
                           "cpus_per_node = 0",
                           "ranks_per_node = 0",
                           "account = maybe",
                           "account_flag = P",
                           "queue_flag = qos",
                           "longest = 2:00",
                           "longest = 2 to 9 nodes",
                           "longest = none",
                           "queue = a b",
                           "queue = a to nodes",
                           "queue = a to 0 nodes",
                           "longest = 2h to 9"}) {
    auto site = parse_site("scheduler = slurm\n" + std::string(line) + "\n", "mine");
    ASSERT_FALSE(site) << line;
    EXPECT_NE(site.error().message.find("'mine', line 2"), std::string::npos) << site.error().message;
  }
  EXPECT_TRUE(parse_site("scheduler = slurm\ngpus_per_node = 0\n", "mine"));
  EXPECT_FALSE(parse_site("title = x\n", "mine"));
  EXPECT_FALSE(parse_site("scheduler = condor\n", "mine"));
}

TEST(Sites, name_a_launcher_that_their_scheduler_has) {
  for (auto [scheduler, launcher, expected] :
       {std::tuple("slurm", "horovodrun", "expected srun or no such line, found 'horovodrun'"),
        std::tuple("lsf", "srun", "expected horovodrun or jsrun"), std::tuple("pbs", "jsrun", "horovodrun or mpiexec"),
        std::tuple("pbs", "mpirun", "horovodrun or mpiexec")}) {
    std::string text = std::string("scheduler = ") + scheduler + "\nlauncher = " + launcher + "\n";
    auto site = parse_site(text, "mine");
    ASSERT_FALSE(site) << text;
    EXPECT_NE(site.error().message.find(expected), std::string::npos) << site.error().message;
  }
  EXPECT_EQ(parse_site("scheduler = slurm\n", "mine")->launcher(), "srun");
  EXPECT_EQ(parse_site("scheduler = pbs\n", "mine")->launcher(), "horovodrun");
  EXPECT_EQ(find_site("summit")->launcher(), "jsrun");
}

TEST(Sites, have_no_key_that_their_template_does_not_read) {
  for (const char* text : {"scheduler = pbs\nconstraint = gpu\n", "scheduler = lsf\nqueue_flag = --qos\n",
                           "scheduler = slurm\nselect = ncpus=4\n"}) {
    auto site = parse_site(text, "mine");
    ASSERT_FALSE(site) << text;
    EXPECT_NE(site.error().message.find("does not read"), std::string::npos) << site.error().message;
  }
  EXPECT_TRUE(parse_site("scheduler = slurm\nconstraint = gpu\n", "mine"));
}

TEST(Sites, of_any_bytes_are_read_or_refused) {
  std::mt19937 random(2026);
  std::string good(find_site("summit") ? compiled_sites().front().text : "");
  for (int round = 0; round < 2000; ++round) {
    std::string text = good;
    for (int change = 0; change < 5; ++change) text[random() % text.size()] = static_cast<char>(random() % 256);
    text.resize(random() % (text.size() + 1));
    auto site = parse_site(text, "mine");
    EXPECT_TRUE(site || !site.error().message.empty());
  }
}

}  // namespace
}  // namespace hvd::jobscripts
