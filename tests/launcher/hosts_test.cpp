#include "launcher/options/hosts.hpp"

#include <gtest/gtest.h>

#include "launcher/agent/rank_environment.hpp"
#include "native/posix/machine/host_identity.hpp"

namespace hvd::launcher {
namespace {

TEST(Hosts, are_read_with_their_slots) {
  auto hosts = parse_hosts("h1:2,host-2.site.org:16");
  ASSERT_TRUE(hosts);
  EXPECT_EQ(*hosts, (std::vector<HostSlots>{{"h1", 2}, {"host-2.site.org", 16}}));
  auto addresses = parse_hosts("10.0.0.1:2,[fd77:0::1]:4");
  ASSERT_TRUE(addresses);
  EXPECT_EQ(*addresses, (std::vector<HostSlots>{{"10.0.0.1", 2}, {"fd77::1", 4}}));
}

TEST(Hosts, may_have_blanks_between_them_and_no_slots) {
  for (const char* text : {"h1:2, h2:4", " h1:2 ,\th2:4 ", "h1:2,h0:0,h2:4"}) {
    auto hosts = parse_hosts(text);
    ASSERT_TRUE(hosts) << text;
    EXPECT_EQ(*hosts, (std::vector<HostSlots>{{"h1", 2}, {"h2", 4}})) << text;
  }
  auto none = parse_hosts("h1:0,h2:0");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("no host has a slot"), std::string::npos) << none.error().message;
}

// ssh, and other programs that get the name as an argument, would take such a name for an option.
TEST(Hosts, that_begin_with_a_dash_are_refused) {
  EXPECT_FALSE(parse_hosts("-V:1"));
  EXPECT_FALSE(parse_hosts("h1:1,-oProxyCommand=x:1"));
  EXPECT_FALSE(parse_host_file("-V slots=1\n", "file"));
  EXPECT_TRUE(parse_hosts("node-1:1"));
}

TEST(Hosts, that_are_malformed_are_refused_by_name) {
  for (const char* text : {"", "h1", "h1:", "h1:-1", "h1:x", "h1:2,", "h 1:2", "h1:2;h2:2", ":2", "fd77::1:2",
                           "[fd77::1]", "[fd77::1:2", "[h1]x:2", "[]:2", "h1:2147483647,h2:2147483647"}) {
    auto hosts = parse_hosts(text);
    ASSERT_FALSE(hosts) << text;
    EXPECT_NE(hosts.error().message.find("name:slots"), std::string::npos);
  }
}

TEST(Hosts, come_from_files_of_lines_with_slots) {
  auto hosts = parse_host_file("# the cluster\n172.31.32.7 slots=8\n\n172.31.33.9   slots=9 # the larger\n", "file");
  ASSERT_TRUE(hosts);
  EXPECT_EQ(*hosts, (std::vector<HostSlots>{{"172.31.32.7", 8}, {"172.31.33.9", 9}}));
  auto addresses = parse_host_file("fd77::1 slots=2\n[fd77::2] slots=3\n", "file");
  ASSERT_TRUE(addresses);
  EXPECT_EQ(*addresses, (std::vector<HostSlots>{{"fd77::1", 2}, {"fd77::2", 3}}));
  auto others = parse_host_file("\xef\xbb\xbfh1 slots = 2\r\nh2 slots= 3\r\nh3 slots =4\nh4 slots=0\n", "file");
  ASSERT_TRUE(others) << others.error().message;
  EXPECT_EQ(*others, (std::vector<HostSlots>{{"h1", 2}, {"h2", 3}, {"h3", 4}}));
  for (const char* text :
       {"h1 slots=1 2\n", "h1 slots\n", "h1 slots=\n", "h1 2\n", "h1 slots=2 max_slots=4\n", "h1 slots=-1\n"})
    EXPECT_FALSE(parse_host_file(text, "file")) << text;
  EXPECT_FALSE(parse_host_file("h1 slots=0\n", "file"));
  auto wrong = parse_host_file("h1 slots=2\nh2 slots=none\n", "my_hosts");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("my_hosts, line 2"), std::string::npos);
  EXPECT_FALSE(parse_host_file("\n# nothing\n", "file"));
}

TEST(Placement, fills_hosts_in_order_and_counts_across_them) {
  auto placements = place({{"worker-0", 1}, {"worker-1", 2}}, 3);
  ASSERT_TRUE(placements);
  auto expect = [&](std::size_t at, const char* host, int local_rank, int local_size, int cross_rank, int cross_size) {
    const Placement& placement = (*placements)[at];
    EXPECT_EQ(placement.host, host);
    EXPECT_EQ(placement.rank.value, static_cast<int>(at));
    EXPECT_EQ(placement.local_rank, local_rank);
    EXPECT_EQ(placement.local_size, local_size);
    EXPECT_EQ(placement.cross_rank, cross_rank);
    EXPECT_EQ(placement.cross_size, cross_size);
  };
  expect(0, "worker-0", 0, 1, 0, 2);
  expect(1, "worker-1", 0, 2, 1, 2);
  expect(2, "worker-1", 1, 2, 0, 1);
}

TEST(Placement, leaves_slots_beyond_the_ranks_empty) {
  auto placements = place({{"a", 4}, {"b", 4}}, 5);
  ASSERT_TRUE(placements);
  EXPECT_EQ(placements->size(), 5u);
  EXPECT_EQ(placements->back().host, "b");
  EXPECT_EQ(placements->back().local_size, 1);
}

TEST(Placement, of_more_ranks_than_slots_fails) {
  EXPECT_FALSE(place({{"a", 1}, {"b", 2}}, 4));
}

TEST(Hosts, that_are_names_of_this_machine_are_one) {
  auto hosts = distinct_hosts({{"localhost", 2}, {"far", 3}, {"127.0.0.1", 1}, {"n12", 4}}, {"n12", {}});
  ASSERT_TRUE(hosts);
  EXPECT_EQ(*hosts, (std::vector<HostSlots>{{"localhost", 7}, {"far", 3}}));
}

TEST(Hosts, that_are_named_twice_are_refused_with_what_to_write) {
  for (const char* again : {"far", "FAR", "far."}) {
    auto hosts = distinct_hosts({{"far", 3}, {"near", 1}, {again, 2}}, {"n12", {}});
    ASSERT_FALSE(hosts) << again;
    EXPECT_NE(hosts.error().message.find(std::string(again) + ":5"), std::string::npos);
  }
}

TEST(Hosts, know_this_machine_by_all_of_its_names) {
  const OwnNames own{"n12", {"10.0.0.12", "fd77::12"}};
  for (const char* name : {"localhost", "127.0.0.1", "127.0.1.1", "::1", "n12", "n12.site.org", "10.0.0.12", "fd77::12",
                           "LOCALHOST", "localhost.", "localhost.localdomain", "N12", "n12.", "N12.site.org"})
    EXPECT_TRUE(is_this_machine(name, own)) << name;
  EXPECT_TRUE(is_this_machine("n12", {"n12.site.org", {}}));
  EXPECT_TRUE(is_this_machine("n12.site.org", {"N12.Site.org", {}}));
  for (const char* name : {"n1", "n123", "10.0.0.1", "fd77::1"}) EXPECT_FALSE(is_this_machine(name, own)) << name;
  EXPECT_EQ(OwnNames::of_this_machine().name, posix::host_name());
}

TEST(RankEnvironment, keeps_what_users_set_for_open_mpi_but_not_what_its_launcher_did) {
  using Entries = std::map<std::string, std::string, std::less<>>;
  Entries user = {{"OMPI_MCA_pmix", "x"}, {"OMPI_MCA_btl", "tcp,self"}};
  EXPECT_EQ(without_traces_of_launchers(Environment(user)).variables(), user);
  Entries rank = user;
  rank.insert({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_MCA_orte_hnp_uri", "1"}, {"OMPI_MCA_ess", "^singleton"}});
  EXPECT_EQ(without_traces_of_launchers(Environment(rank)).variables(), (Entries{{"OMPI_MCA_btl", "tcp,self"}}));
}

// On another host, the program that started the agent may itself be a launcher and leave its variables.
TEST(RankEnvironment, leaves_the_choice_of_gpus_on_the_host_where_it_was_made) {
  Environment own;
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "APPTAINERENV_CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                           "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES_OF_MINE"})
    own.set(name, "0");
  EXPECT_EQ(exportable(own).variables().size(), 1u);
  EXPECT_TRUE(exportable(own).has("CUDA_VISIBLE_DEVICES_OF_MINE"));
}

TEST(RankEnvironment, takes_what_another_host_has_but_no_traces_of_launchers_there) {
  StartRank launch;
  launch.environment = {"PATH=/here", "HOROVOD_RANK=1"};
  complete_environment(launch, Share{},
                       Environment({{"PATH", "/there"},
                                    {"HOME", "/home"},
                                    {"HOROVOD_RANK", "7"},
                                    {"PMIX_NAMESPACE", "x"},
                                    {"HOROVOD_OWNER", "1"}}));
  EXPECT_EQ(launch.environment, (std::vector<std::string>{"PATH=/here", "HOROVOD_RANK=1", "HOME=/home"}));
}

}  // namespace
}  // namespace hvd::launcher
