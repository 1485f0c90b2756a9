#include "jobscripts/site.hpp"

#include <gtest/gtest.h>

#include <random>

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

TEST(Sites, that_are_wrong_are_named_with_the_line) {
  for (const char* line :
       {"titel = x", "title", "title =", "scheduler = slurm", "gpus_per_node = four", "gpus_per_node = -1", "= x"}) {
    auto site = parse_site("scheduler = slurm\n" + std::string(line) + "\n", "mine");
    ASSERT_FALSE(site) << line;
    EXPECT_NE(site.error().message.find("'mine', line 2"), std::string::npos) << site.error().message;
  }
  EXPECT_FALSE(parse_site("title = x\n", "mine"));
  EXPECT_FALSE(parse_site("scheduler = condor\n", "mine"));
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
