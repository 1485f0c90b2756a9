// The hosts of an elastic job, from real scripts.
#include "launcher/elastic/discovery.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "in_own_folder.hpp"
#include "native/posix/processes/process.hpp"
#include "native/posix/processes/process_end.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;
using Hosts = std::vector<HostSlots>;
using Found = Result<Hosts>;

// ---- what a script has printed

struct Printed {
  const char* text;
  std::optional<int> slots_per_host;
  Hosts hosts;
};
TEST(FoundHosts, are_lines_with_or_without_slots) {
  for (const Printed& each : std::initializer_list<Printed>{
           {"a:2\nb:4\n", {}, {{"a", 2}, {"b", 4}}},
           {"a\nb:4\n", 3, {{"a", 3}, {"b", 4}}},
           {"\n  a:2 \r\n\n\tb:1", {}, {{"a", 2}, {"b", 1}}},
           {"a:2\na:2\n", {}, {{"a", 2}}},
           {"a:0\nb:1\n", {}, {{"b", 1}}},
           {"[fd00::1]:2\nfd00::2\n", 1, {{"fd00::1", 2}, {"fd00::2", 1}}},
           {"localhost:2\n127.0.0.1:2\n", {}, {{"localhost", 2}, {"127.0.0.1", 2}}},  // two names, two hosts
           {"", {}, {}},
       }) {
    auto found = read_found_hosts(each.text, each.slots_per_host);
    ASSERT_TRUE(found) << each.text << found.error().message;
    EXPECT_EQ(*found, each.hosts) << each.text;
  }
}

struct Refused {
  const char* text;
  const char* message;
};
TEST(FoundHosts, that_cannot_be_read_are_named_with_their_line) {
  for (const Refused& each : std::initializer_list<Refused>{
           {"a:2\n<html>\n", "line 2 must be 'host' or 'host:slots', not '<html>'"},
           {"a:two\n", "line 1 must be 'host' or 'host:slots', not 'a:two'"},
           {"a:-1\n", "line 1 must be 'host' or 'host:slots', not 'a:-1'"},
           {"a b\n", "line 1 must be 'host' or 'host:slots', not 'a b'"},
           {"-oProxyCommand=x:2\n", "line 1 must be 'host' or 'host:slots', not '-oProxyCommand=x:2'"},
           {"a:2\n\nb\n", "line 3 names the host b without slots: print 'b:SLOTS', or give --slots-per-host"},
           {"a:2\nb:1\na:4\n", "line 3 names the host a a second time, with 4 slots, after 2: name each host once"},
       }) {
    auto found = read_found_hosts(each.text, {});
    ASSERT_FALSE(found) << each.text;
    EXPECT_EQ(found.error().message, each.message);
  }
}

// ---- scripts

class DiscoveryByScript : public testing::InOwnFolder {
 protected:
  static Discovery::Script script(const std::string& command) { return {.command = command, .pause = milliseconds(1)}; }
  Discovery::Script script_here(const std::string& command) const { return script("cd " + folder_ + "; " + command); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  pid_t number_in(const std::string& name) const {
    pid_t number = 0;
    std::ifstream(path(name)) >> number;
    return number;
  }
  static Found next(Discovery& discovery) {
    for (;;) {
      if (auto found = discovery.look()) return std::move(*found);
      std::vector<pollfd> wanted = discovery.wanted();
      ::poll(wanted.data(), wanted.size(), static_cast<int>(discovery.left().count()));
    }
  }
  static std::string failure_of(Discovery::Script script) {
    Discovery discovery(std::move(script));
    auto found = next(discovery);
    return found ? "no failure" : found.error().message;
  }
  static std::string failure_of(const std::string& command) { return failure_of(script(command)); }
};

TEST_F(DiscoveryByScript, finds_what_the_script_prints_each_time_anew) {
  write("hosts", "a:1\n");
  write("find.sh", "cat hosts\n");
  Discovery discovery(script_here("sh find.sh"));
  EXPECT_EQ(*next(discovery), (Hosts{{"a", 1}}));
  write("hosts", "a:1\nb:2\n");
  EXPECT_EQ(*next(discovery), (Hosts{{"a", 1}, {"b", 2}}));
}

TEST_F(DiscoveryByScript, runs_commands_of_the_shell) {
  Discovery discovery(script("for h in a b; do echo $h:2; done | sort -r"));
  EXPECT_EQ(*next(discovery), (Hosts{{"b", 2}, {"a", 2}}));
}

TEST_F(DiscoveryByScript, takes_the_slots_of_hosts_from_the_flag_if_the_script_does_not_tell_them) {
  Discovery::Script it = script("echo a; echo b:1");
  it.slots_per_host = 4;
  Discovery discovery(it);
  EXPECT_EQ(*next(discovery), (Hosts{{"a", 4}, {"b", 1}}));
}

TEST_F(DiscoveryByScript, that_fails_is_named_with_what_it_complains_about) {
  EXPECT_EQ(failure_of("echo a:2; echo no such cluster >&2; exit 3"),
            "the script of --host-discovery-script (echo a:2; echo no such cluster >&2; exit 3) exited with code 3; it "
            "wrote to standard error: no such cluster");
  EXPECT_NE(failure_of("./missing.sh").find("exited with code 127"), std::string::npos);
  EXPECT_NE(failure_of("kill -9 $$").find("was killed by signal 9 (SIGKILL)"), std::string::npos);
}

TEST_F(DiscoveryByScript, that_prints_rubbish_is_named_with_the_line) {
  EXPECT_EQ(
      failure_of("echo a:1; echo 'Traceback (most recent call last):'"),
      "the script of --host-discovery-script (echo a:1; echo 'Traceback (most recent call last):') has printed what "
      "is no list of hosts: line 2 must be 'host' or 'host:slots', not 'Traceback (most recent call last):'");
  EXPECT_NE(failure_of("yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa").find("more than a list of hosts can have"),
            std::string::npos);
}

TEST_F(DiscoveryByScript, that_hangs_is_killed_with_all_its_processes) {
  Discovery::Script hanging = script_here("sleep 1000 & echo $! > sleeper; wait");
  hanging.limit = milliseconds(5000);
  EXPECT_NE(failure_of(hanging).find("has not ended within 5 s, and was killed"), std::string::npos);
  const pid_t sleeper = number_in("sleeper");
  ASSERT_GT(sleeper, 0);
  posix::wait_for_process_end(sleeper, std::chrono::minutes(1));
  EXPECT_TRUE(::kill(sleeper, 0) != 0 || posix::is_zombie(sleeper));
}

TEST_F(DiscoveryByScript, goes_on_after_a_failure) {
  write("code", "1");
  Discovery discovery(script_here("echo a:1; exit $(cat code)"));
  EXPECT_FALSE(next(discovery));
  write("code", "0");
  EXPECT_EQ(*next(discovery), (Hosts{{"a", 1}}));
}

TEST_F(DiscoveryByScript, does_not_wait_for_what_the_script_leaves_in_the_background) {
  Discovery discovery(script_here("sleep 1000 & echo $! > sleeper; echo a:1"));
  EXPECT_EQ(*next(discovery), (Hosts{{"a", 1}}));
  ASSERT_GT(number_in("sleeper"), 0);
  ::kill(number_in("sleeper"), SIGKILL);
}

TEST_F(DiscoveryByScript, ends_a_script_that_runs_when_the_job_ends) {
  {
    Discovery discovery(script_here("echo $$ > shell.tmp; mv shell.tmp shell; exec sleep 1000"));
    while (!std::filesystem::exists(path("shell"))) discovery.look();
  }
  EXPECT_NE(::kill(number_in("shell"), 0), 0);
}

TEST(FixedHosts, are_found_once) {
  Discovery discovery(Hosts{{"a", 2}});
  EXPECT_EQ(**discovery.look(), (Hosts{{"a", 2}}));
  EXPECT_FALSE(discovery.look());
  EXPECT_TRUE(discovery.wanted().empty());
}

}  // namespace
}  // namespace hvd::launcher
