#include "launcher/wire/channel.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

namespace hvd::launcher {
namespace {

struct Ends {
  AgentChannel horovodrun;
  HorovodrunChannel agent;
};

Ends make_channels() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {AgentChannel(posix::FileDescriptor(ends[0])), HorovodrunChannel(posix::FileDescriptor(ends[1]))};
}

TEST(Messages, arrive_as_they_were_sent) {
  Ends ends = make_channels();
  StartRank launch;
  launch.rank = Rank{3};
  launch.title = "rank 3";
  launch.program = "/bin/echo";
  launch.command = {"echo", "", "a b"};
  launch.environment = {"A=1", "B=x=y"};
  launch.folder = "/tmp";
  launch.local_rank = 2;
  launch.input = InputFrom::horovodrun;
  Exited exited;
  exited.rank = Rank{1};
  exited.wait_status = 9;
  exited.group_known = true;
  exited.oom_kills = 2;
  exited.limit_bytes = 1ull << 40;
  exited.group = "/job";
  ends.horovodrun.send(launch);
  ends.horovodrun.flush();
  auto orders = ends.agent.pump();
  ASSERT_EQ(orders.size(), 1u);
  const auto& got = std::get<StartRank>(orders[0]);
  EXPECT_EQ(got.rank, launch.rank);
  EXPECT_EQ(got.title, launch.title);
  EXPECT_EQ(got.program, launch.program);
  EXPECT_EQ(got.command, launch.command);
  EXPECT_EQ(got.environment, launch.environment);
  EXPECT_EQ(got.folder, launch.folder);
  EXPECT_EQ(got.local_rank, 2);
  EXPECT_EQ(got.input, InputFrom::horovodrun);
  ends.agent.send(exited);
  ends.agent.send(Output{Rank{2}, Stream::standard_error, std::string("a\0b", 3)});
  ends.agent.send(AllEnded{});
  ends.agent.send(Stopped{Rank{4}, 19, 4711});
  ends.agent.flush();
  auto reports = ends.horovodrun.pump();
  ASSERT_EQ(reports.size(), 4u);
  const auto& end = std::get<Exited>(reports[0]);
  EXPECT_EQ(end.wait_status, 9);
  EXPECT_EQ(end.oom_kills, 2u);
  EXPECT_EQ(end.limit_bytes, 1ull << 40);
  EXPECT_EQ(end.group, "/job");
  EXPECT_EQ(std::get<Output>(reports[1]).bytes, std::string("a\0b", 3));
  EXPECT_TRUE(std::holds_alternative<AllEnded>(reports[2]));
  EXPECT_EQ(std::get<Stopped>(reports[3]).rank, Rank{4});
  EXPECT_EQ(std::get<Stopped>(reports[3]).signal, 19);
  EXPECT_EQ(std::get<Stopped>(reports[3]).process, 4711);
}

TEST(Messages, larger_than_the_socket_arrive_in_pieces) {
  Ends ends = make_channels();
  StartRank launch;
  launch.environment.assign(1000, std::string(5000, 'x'));
  ends.horovodrun.send(launch);
  std::vector<Order> orders;
  while (orders.empty()) {
    ends.horovodrun.flush();
    orders = ends.agent.pump();
  }
  EXPECT_EQ(std::get<StartRank>(orders[0]).environment, launch.environment);
  EXPECT_EQ(ends.horovodrun.wants(), POLLIN);
}

TEST(Messages, sent_before_the_end_are_read_before_it) {
  Ends ends = make_channels();
  ends.agent.send(Told{15});
  ends.agent.flush();
  ends.agent.close();
  auto messages = ends.horovodrun.pump();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_TRUE(ends.horovodrun.closed());
}

TEST(Messages, that_are_malformed_are_recognised) {
  Buffer content;
  encode(Order(Forward{10}), content);
  EXPECT_TRUE(decode<Order>(content));
  EXPECT_FALSE(decode<Order>(ConstBytes(content).first(content.size() - 1)));
  content.push_back(std::byte{0});
  EXPECT_FALSE(decode<Order>(content));
  content[0] = std::byte{200};
  EXPECT_FALSE(decode<Order>(content));
  EXPECT_FALSE(decode<Order>({}));
}

TEST(Messages, begin_after_the_greeting_whatever_came_before) {
  Ends ends = make_channels();
  ends.horovodrun.expect_greeting("\nhello, version 1\n");
  ends.agent.greet("Welcome to this machine!\nhello, version 2");
  ends.agent.flush();
  EXPECT_TRUE(ends.horovodrun.pump().empty());
  EXPECT_FALSE(ends.horovodrun.was_greeted());
  EXPECT_EQ(ends.horovodrun.other_greeting("hello, version "), "");  // the greeting may be incomplete
  ends.agent.greet("\nhello, version 1\n");
  ends.agent.send(AllEnded{});
  ends.agent.flush();
  EXPECT_EQ(ends.horovodrun.pump().size(), 1u);
  EXPECT_TRUE(ends.horovodrun.was_greeted());
}

TEST(Messages, of_another_version_are_told_by_its_greeting) {
  Ends ends = make_channels();
  ends.horovodrun.expect_greeting("\nhello, version 1\n");
  ends.agent.greet("\nhello, version 2\n");
  ends.agent.flush();
  EXPECT_TRUE(ends.horovodrun.pump().empty());
  EXPECT_EQ(ends.horovodrun.other_greeting("hello, version "), "hello, version 2");
}

TEST(Messages, that_make_no_sense_end_the_stream) {
  Ends ends = make_channels();
  ends.agent.greet(std::string("\3\0\0\0abc", 7));
  ends.agent.flush();
  EXPECT_TRUE(ends.horovodrun.pump().empty());
  EXPECT_TRUE(ends.horovodrun.closed());
}

}  // namespace
}  // namespace hvd::launcher
