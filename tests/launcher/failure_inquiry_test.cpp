#include "launcher/job/failure_inquiry.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

namespace hvd::launcher {
namespace {

// Hosts whose agents are played by the test.
class Inquiry : public ::testing::Test {
 protected:
  Inquiry() {
    std::vector<HostLink> links;
    for (const char* name : {"n0", "n1", "n2"}) {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      HostLink& link = links.emplace_back();
      link.name = name;
      link.state = HostLink::State::ready;
      link.channel = AgentChannel(posix::FileDescriptor(ends[0]));
      agents_.emplace_back(posix::FileDescriptor(ends[1]));
    }
    hosts_ = HostLinks(std::move(links));
  }

  // True if the agent of that host was asked since the last call. Then the agent answers.
  bool answer(std::size_t host) {
    bool was_asked = false;
    for (const Order& order : agents_[host].pump()) was_asked = was_asked || std::holds_alternative<Ask>(order);
    if (was_asked) agents_[host].send(Answered{});
    agents_[host].flush();
    hosts_.receive([](HostLink&, const Report&) {});
    return was_asked;
  }

  static FirstFailure ended(int rank, int wait_status, std::int64_t at_ns) {
    Exited end;
    end.rank = Rank{rank};
    end.wait_status = wait_status;
    end.at_ns = at_ns;
    return failure_by_end(end, 100 + rank);
  }

  std::vector<HorovodrunChannel> agents_;
  HostLinks hosts_;
  FailureInquiry inquiry_{hosts_};
};

TEST_F(Inquiry, asks_all_hosts_before_it_names_the_cause) {
  EXPECT_FALSE(inquiry_.conclusion());
  inquiry_.add(hosts_[1], ended(1, 1 << 8, 500));
  EXPECT_TRUE(answer(1));
  EXPECT_TRUE(answer(0));
  EXPECT_TRUE(hosts_.is_answer_awaited());
  inquiry_.add(hosts_[2], ended(2, SIGKILL, 900));
  EXPECT_TRUE(answer(2));
  auto cause = inquiry_.conclusion();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, Rank{2});
  EXPECT_EQ(cause->host, "n2");
}

// Events that an agent learns of at the same time are reported in the order of the ranks.
TEST_F(Inquiry, names_the_killed_rank_of_a_host_though_a_consequence_was_told_first) {
  inquiry_.add(hosts_[0], ended(0, 3 << 8, 500));
  EXPECT_TRUE(answer(1) && answer(2));
  EXPECT_FALSE(inquiry_.conclusion());
  inquiry_.add(hosts_[0], ended(2, SIGKILL, 501));
  EXPECT_TRUE(answer(0));
  auto cause = inquiry_.conclusion();
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, Rank{2});
}

TEST_F(Inquiry, waits_for_no_host_that_is_gone_or_cut_off) {
  hosts_[0].be_gone();
  inquiry_.add(hosts_[1], ended(1, 1 << 8, 500));
  EXPECT_FALSE(answer(0));
  EXPECT_TRUE(answer(1));
  EXPECT_TRUE(hosts_.is_answer_awaited());
  hosts_[2].channel.close();
  // The rank ended by itself, but perhaps because of another rank whose failure is not known yet. The inquiry waits a
  // while for such a failure.
  std::optional<FirstFailure> cause;
  while (!(cause = inquiry_.conclusion())) ::usleep(1000);
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->rank, Rank{1});
}

TEST_F(Inquiry, names_nothing_where_nothing_failed) {
  EXPECT_FALSE(inquiry_.conclusion());
}

}  // namespace
}  // namespace hvd::launcher
