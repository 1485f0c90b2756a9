#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "schedulers/grammar/durations.hpp"
#include "schedulers/grammar/host_lists.hpp"

namespace hvd::schedulers {
namespace {

std::string expanded(const char* text) {
  auto hosts = expand_hosts(text);
  if (!hosts) return "error";
  std::string joined;
  for (const std::string& host : *hosts) joined += (joined.empty() ? "" : " ") + host;
  return joined;
}

TEST(HostLists, expand_as_scontrol_does) {
  EXPECT_EQ(expanded("n1"), "n1");
  EXPECT_EQ(expanded("a[1-2],b[01-02]"), "a1 a2 b01 b02");
  EXPECT_EQ(expanded("n[9-11]"), "n9 n10 n11");
  EXPECT_EQ(expanded("n[009-011,3]-ib"), "n009-ib n010-ib n011-ib n3-ib");
  EXPECT_EQ(expanded("rack[01-03,7]-x[001-002]"),
            "rack01-x001 rack01-x002 rack02-x001 rack02-x002 rack03-x001 rack03-x002 rack7-x001 rack7-x002");
  EXPECT_EQ(expand_hosts("n[0-65535]")->size(), 65536u);
}

TEST(HostLists, that_cannot_be_expanded_are_refused) {
  for (const char* text : {"",
                           ",",
                           "n1,,n2",
                           "n[",
                           "n]",
                           "n[]",
                           "n[1-]",
                           "n[-1]",
                           "n[2-1]",
                           "n[a-b]",
                           "n[1,]",
                           "n[1]]",
                           "n[[1]]",
                           "n 1",
                           "n[1-2]x[",
                           "n[0-65536]",
                           "n[0-999]x[0-999]",
                           "n[0-4294967295]",
                           "n[99999999999]",
                           "-n",
                           "n;rm",
                           "$(n)",
                           "n[1-2],n[1-"})
    EXPECT_EQ(expanded(text), "error") << text;
}

TEST(HostLists, in_lines_are_counted_host_by_host) {
  auto hosts = hosts_by_lines("n1\nn2 \r\n\nn1\n");
  ASSERT_TRUE(hosts);
  ASSERT_EQ(hosts->size(), 2u);
  EXPECT_EQ((*hosts)[0].name, "n1");
  EXPECT_EQ((*hosts)[0].slots, 2);
  EXPECT_EQ((*hosts)[1].slots, 1);
  static constexpr std::string_view wrong[] = {"", "\n", "n1\nn 2\n", "n1\n-x\n"};
  for (std::string_view text : wrong) EXPECT_FALSE(hosts_by_lines(text)) << text;
}

TEST(NumbersPerNode, are_read_and_nothing_else_is) {
  EXPECT_EQ(*numbers_per_node("72(x2),36"), (std::vector<int>{72, 72, 36}));
  EXPECT_EQ(*numbers_per_node("3,1"), (std::vector<int>{3, 1}));
  for (const char* text : {"", "x", "3,", "3(x", "3(x0)", "3(2)", "3(x2", ",3", "-1", "3(x65537)", "9999999",
                           "1(x65536),1", "3 ", "3(x-1)"})
    EXPECT_FALSE(numbers_per_node(text)) << text;
}

TEST(NumbersIn, ranges_are_read_and_nothing_else_is) {
  EXPECT_EQ(*numbers_in("0-3,7"), (std::vector<int>{0, 1, 2, 3, 7}));
  for (const char* text : {"", "-", "3-", "a", "3-1", "0-4294967295", "4294967295", "1,,2"})
    EXPECT_FALSE(numbers_in(text)) << text;
}

TEST(Durations, are_read_as_their_schedulers_write_them) {
  auto seconds = [](std::optional<std::chrono::seconds> span) { return span ? span->count() : -1; };
  EXPECT_EQ(seconds(duration_in("2-03:04:05")), 2 * 86400 + 3 * 3600 + 4 * 60 + 5);
  EXPECT_EQ(seconds(duration_in("100:00:01")), 360001);
  EXPECT_EQ(seconds(duration_in("04:05")), 245);
  EXPECT_EQ(seconds(hours_and_minutes_in("27:05 L\n")), 27 * 3600 + 300);
  for (const char* text :
       {"", "UNLIMITED", "INVALID", "5", "1:2:3:4", "1:60", "1:-1", "-1:00", "1-1:00", "a:b", "1:2 "})
    EXPECT_EQ(seconds(duration_in(text)), -1) << text;
  for (const char* text : {"", "-", "0", "1:60", "1:2:3", "-1:00"})
    EXPECT_EQ(seconds(hours_and_minutes_in(text)), -1) << text;
}

}  // namespace
}  // namespace hvd::schedulers
