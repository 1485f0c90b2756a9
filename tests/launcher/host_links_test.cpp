#include "launcher/job/host_links.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "launcher/job/host_progress.hpp"

namespace hvd::launcher {
namespace {

// Start commands that reach no host and only wait.
struct ManyHosts : ::testing::Test {
  void SetUp() override {
    ::signal(SIGPIPE, SIG_IGN);
    for (int host = 0; host < 150; ++host) {
      options_.hosts.push_back({"n" + std::to_string(host), {"/bin/sh", "-c", "cat >/dev/null; true"}});
      options_.placements.push_back({});
      options_.placements.back().host_index = static_cast<std::size_t>(host);
    }
    ASSERT_TRUE(hosts_.reach(options_, settings_));
  }
  void TearDown() override {
    for (HostLink& host : hosts_) {
      if (host.process <= 0) continue;
      ::kill(host.process, SIGKILL);
      ::waitpid(host.process, nullptr, 0);
    }
  }
  Status reach_more() {
    return hosts_.reach_more([this](std::size_t at) { greeted_.push_back(at); });
  }
  std::size_t reached() const {
    return static_cast<std::size_t>(
        std::count_if(hosts_.begin(), hosts_.end(), [](const HostLink& host) { return host.process > 0; }));
  }

  bool is_any_waiting() const {
    return std::any_of(hosts_.begin(), hosts_.end(), [](const HostLink& host) { return host.is_waiting(); });
  }

  JobOptions options_;
  AgentSettings settings_{};
  HostLinks hosts_;
  std::vector<std::size_t> greeted_;
};

TEST_F(ManyHosts, are_reached_for_by_turns) {
  ASSERT_TRUE(reach_more());
  ASSERT_TRUE(reach_more());
  EXPECT_EQ(reached(), HostLinks::most_at_once);
  EXPECT_EQ(greeted_.size(), HostLinks::most_at_once);
  EXPECT_TRUE(is_any_waiting());
  for (std::size_t host = 0; host < 10; ++host) hosts_[host].state = HostLink::State::ready;
  hosts_[10].be_gone();
  ASSERT_TRUE(reach_more());
  EXPECT_EQ(reached(), HostLinks::most_at_once + 11);
  for (HostLink& host : hosts_)
    if (!host.is_waiting()) host.state = HostLink::State::ready;
  ASSERT_TRUE(reach_more());
  EXPECT_EQ(reached(), 2 * HostLinks::most_at_once + 11);
  for (HostLink& host : hosts_)
    if (!host.is_waiting()) host.state = HostLink::State::ready;
  ASSERT_TRUE(reach_more());
  EXPECT_EQ(reached(), 150u);
  EXPECT_FALSE(is_any_waiting());
}

TEST_F(ManyHosts, that_wait_for_their_turn_are_gone_at_once_when_the_end_is_ordered) {
  ASSERT_TRUE(reach_more());
  hosts_.order_end(SIGTERM, std::chrono::milliseconds(10));
  EXPECT_FALSE(is_any_waiting());
  EXPECT_TRUE(hosts_[149].is_gone());
  ASSERT_TRUE(reach_more());
  EXPECT_EQ(reached(), HostLinks::most_at_once);
}

TEST_F(ManyHosts, are_counted_for_a_user_who_waits) {
  ASSERT_TRUE(reach_more());
  Clock::time_point begin{};
  HostProgress progress(begin + std::chrono::seconds(100));
  auto after = [&](int seconds) { return progress.look(hosts_, begin + std::chrono::seconds(100 + seconds)); };
  EXPECT_FALSE(after(1));
  EXPECT_EQ(after(2), "0 of 150 hosts have answered; waiting for n0, n1, n2, n3 and 146 more");
  EXPECT_FALSE(after(5)) << "nothing is new";
  for (HostLink& host : hosts_)
    if (host.name != "n7" && host.name != "n9") host.state = HostLink::State::ready;
  EXPECT_EQ(after(7), "148 of 150 hosts have answered; waiting for n7, n9");
  EXPECT_FALSE(after(8));
  EXPECT_EQ(after(17), "148 of 150 hosts have answered; waiting for n7, n9");
  for (HostLink& host : hosts_) host.state = HostLink::State::ready;
  EXPECT_FALSE(after(60));
}

}  // namespace
}  // namespace hvd::launcher
