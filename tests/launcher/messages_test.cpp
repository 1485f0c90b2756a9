#include "launcher/wire/channel.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

namespace hvd::launcher {
namespace {

struct Ends {
  Channel one, other;
};

Ends make_channels() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {Channel(posix::FileDescriptor(ends[0])), Channel(posix::FileDescriptor(ends[1]))};
}

TEST(Messages, arrive_as_they_were_sent) {
  Ends ends = make_channels();
  Launch launch;
  launch.rank = Rank{3};
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
  ends.one.send(launch);
  ends.one.send(exited);
  ends.one.send(Output{Rank{2}, Stream::standard_error, std::string("a\0b", 3)});
  ends.one.send(AllGone{});
  ends.one.send(Stopped{Rank{4}, 19, 4711});
  ends.one.flush();
  auto messages = ends.other.pump();
  ASSERT_EQ(messages.size(), 5u);
  const auto& got = std::get<Launch>(messages[0]);
  EXPECT_EQ(got.rank, launch.rank);
  EXPECT_EQ(got.program, launch.program);
  EXPECT_EQ(got.command, launch.command);
  EXPECT_EQ(got.environment, launch.environment);
  EXPECT_EQ(got.folder, launch.folder);
  EXPECT_EQ(got.local_rank, 2);
  EXPECT_EQ(got.input, InputFrom::horovodrun);
  const auto& end = std::get<Exited>(messages[1]);
  EXPECT_EQ(end.wait_status, 9);
  EXPECT_EQ(end.oom_kills, 2u);
  EXPECT_EQ(end.limit_bytes, 1ull << 40);
  EXPECT_EQ(end.group, "/job");
  EXPECT_EQ(std::get<Output>(messages[2]).bytes, std::string("a\0b", 3));
  EXPECT_TRUE(std::holds_alternative<AllGone>(messages[3]));
  EXPECT_EQ(std::get<Stopped>(messages[4]).rank, Rank{4});
  EXPECT_EQ(std::get<Stopped>(messages[4]).signal, 19);
  EXPECT_EQ(std::get<Stopped>(messages[4]).process, 4711);
}

TEST(Messages, larger_than_the_socket_arrive_in_pieces) {
  Ends ends = make_channels();
  Launch launch;
  launch.environment.assign(1000, std::string(5000, 'x'));
  ends.one.send(launch);
  std::vector<Message> messages;
  while (messages.empty()) {
    ends.one.flush();
    messages = ends.other.pump();
  }
  EXPECT_EQ(std::get<Launch>(messages[0]).environment, launch.environment);
  EXPECT_EQ(ends.one.wants(), POLLIN);
}

TEST(Messages, sent_before_the_end_are_read_before_it) {
  Ends ends = make_channels();
  ends.one.send(Told{15});
  ends.one.flush();
  ends.one.close();
  auto messages = ends.other.pump();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_TRUE(ends.other.closed());
}

TEST(Messages, that_are_malformed_are_recognised) {
  Buffer content;
  encode(Forward{10}, content);
  EXPECT_TRUE(decode(content));
  EXPECT_FALSE(decode(ConstBytes(content).first(content.size() - 1)));
  content.push_back(std::byte{0});
  EXPECT_FALSE(decode(content));
  content[0] = std::byte{200};
  EXPECT_FALSE(decode(content));
  EXPECT_FALSE(decode({}));
}

TEST(Messages, begin_after_the_greeting_whatever_came_before) {
  Ends ends = make_channels();
  ends.other.expect_greeting("\nhello, version 1\n");
  ends.one.greet("Welcome to this machine!\nhello, version 2");
  ends.one.flush();
  EXPECT_TRUE(ends.other.pump().empty());
  EXPECT_FALSE(ends.other.was_greeted());
  EXPECT_EQ(ends.other.other_greeting("hello, version "), "");  // may go on
  ends.one.greet("\nhello, version 1\n");
  ends.one.send(AllGone{});
  ends.one.flush();
  EXPECT_EQ(ends.other.pump().size(), 1u);
  EXPECT_TRUE(ends.other.was_greeted());
}

TEST(Messages, of_another_version_are_told_by_its_greeting) {
  Ends ends = make_channels();
  ends.other.expect_greeting("\nhello, version 1\n");
  ends.one.greet("\nhello, version 2\n");
  ends.one.flush();
  EXPECT_TRUE(ends.other.pump().empty());
  EXPECT_EQ(ends.other.other_greeting("hello, version "), "hello, version 2");
}

TEST(Messages, that_make_no_sense_end_the_stream) {
  Ends ends = make_channels();
  ends.one.greet(std::string("\3\0\0\0abc", 7));
  ends.one.flush();
  EXPECT_TRUE(ends.other.pump().empty());
  EXPECT_TRUE(ends.other.closed());
}

}  // namespace
}  // namespace hvd::launcher
