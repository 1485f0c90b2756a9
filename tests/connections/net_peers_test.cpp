#include "connections/net_peers.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstring>
#include <set>
#include <thread>

#include "connections/tcp/handshake.hpp"
#include "net_ranks.hpp"

namespace hvd::connections {
namespace {

using posix::FileDescriptor;
using testing::loopback_config;
using testing::NetRank;
using testing::NetRanks;
using testing::Stranger;

// Returns both ends of the connection `name`, the end of the higher rank first.
std::pair<FileDescriptor, FileDescriptor> connect(NetRanks& ranks, int higher, int lower, std::string_view name) {
  auto first = ranks[lower].peers->connection(Rank{higher}, name);
  EXPECT_TRUE(first && !*first);
  auto high = ranks[higher].connection(lower, name);
  auto low = ranks[lower].connection(higher, name);
  EXPECT_TRUE(high) << high.error().message;
  EXPECT_TRUE(low) << low.error().message;
  if (!high || !low) return {};
  return {std::move(*high), std::move(*low)};
}

void wait_readable(int socket) {
  pollfd waited{socket, POLLIN, 0};
  ASSERT_EQ(::poll(&waited, 1, 60'000), 1);
}

void expect_connected(const FileDescriptor& from, const FileDescriptor& to, std::string_view text) {
  ASSERT_EQ(::send(from.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  wait_readable(to.get());
  std::string got(text.size() + 1, '\0');
  ssize_t size = ::recv(to.get(), got.data(), got.size(), 0);
  EXPECT_EQ(got.substr(0, static_cast<std::size_t>(std::max<ssize_t>(size, 0))), text);
}

// Returns the text that is written to stderr while `body` runs.
template <typename Body>
std::string log_of(Body body) {
  ::testing::internal::CaptureStderr();
  body();
  return ::testing::internal::GetCapturedStderr();
}
int count(std::string_view text, std::string_view part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(NetPeers, hand_out_connections_by_peer_and_name) {
  NetRanks ranks(3);
  auto [a, b] = connect(ranks, 2, 0, "control");
  auto [c, d] = connect(ranks, 2, 0, "data");
  auto [e, f] = connect(ranks, 1, 0, "control");
  auto [g, h] = connect(ranks, 2, 1, "a name as long as one likes: " + std::string(5000, 'x'));
  expect_connected(a, b, "2 to 0, control");
  expect_connected(d, c, "0 to 2, data");
  expect_connected(e, f, "1 to 0, control");
  expect_connected(h, g, "1 to 2");
  for (const auto* socket : {&a, &b, &g, &h}) {
    EXPECT_TRUE(::fcntl(socket->get(), F_GETFL) & O_NONBLOCK);
    EXPECT_TRUE(::fcntl(socket->get(), F_GETFD) & FD_CLOEXEC);
  }
  EXPECT_EQ(ranks[0].peers->describe(b.get()), "127.0.0.1 (lo)");
  EXPECT_EQ(ranks[0].peers->describe_missing(), "");
}

TEST(NetPeers, a_connection_is_there_whoever_asks_first) {
  NetRanks ranks(2);
  auto high = ranks[1].connection(0, "early");  // before rank 0 asks for it
  ASSERT_TRUE(high) << high.error().message;
  auto low = ranks[0].connection(1, "early");
  ASSERT_TRUE(low) << low.error().message;
  expect_connected(*high, *low, "hello");
}

TEST(NetPeers, tell_which_connections_are_missing) {
  NetRanks ranks(2);
  auto asked = ranks[0].peers->connection(Rank{1}, "control");
  ASSERT_TRUE(asked && !*asked);
  EXPECT_EQ(ranks[0].peers->describe_missing(),
            "rank 1 (host n1, process 1001) has not connected yet to " + ranks[0].world.me().endpoints + " (control)");
}

TEST(NetPeers, name_a_handful_of_the_missing_and_count_the_rest) {
  NetRanks ranks(9);
  for (int peer = 1; peer < 9; ++peer) ASSERT_TRUE(ranks[0].peers->connection(Rank{peer}, "control"));
  std::string missing = ranks[0].peers->describe_missing();
  EXPECT_NE(missing.find("rank 4 (host n4"), std::string::npos) << missing;
  EXPECT_EQ(missing.find("rank 5"), std::string::npos) << missing;
  EXPECT_TRUE(missing.ends_with("; and 4 more")) << missing;
}

TEST(NetPeers, refuse_a_connection_to_oneself_or_to_nobody) {
  NetRanks ranks(2);
  for (int peer : {0, -1, 2}) EXPECT_FALSE(ranks[0].peers->connection(Rank{peer}, "x")) << peer;
}

TEST(NetPeers, refuse_to_start_in_a_job_without_a_secret) {
  World world = testing::made_up_world({1, 1});
  auto listener = NetListener::open(loopback_config());
  ASSERT_TRUE(listener);
  EXPECT_FALSE(NetPeers::start(world, loopback_config(), std::move(*listener)));
}

TEST(NetPeers, wake_a_sleeper_whose_socket_can_be_read_again_and_again) {
  NetRanks ranks(2);
  auto [high, low] = connect(ranks, 1, 0, "control");
  for (int turn = 0; turn < 200; ++turn) {
    std::uint32_t announced = ranks[0].wake.announce();
    ranks[0].peers->arm(low.get(), false);
    char byte = 'x';
    ASSERT_EQ(::send(high.get(), &byte, 1, MSG_NOSIGNAL), 1);
    // The rank may also be woken for other reasons. It must not sleep on when the byte has arrived.
    while (::recv(low.get(), &byte, 1, 0) != 1) {
      ranks[0].wake.sleep(announced, std::chrono::seconds(60));
      announced = ranks[0].wake.announce();
      ranks[0].peers->arm(low.get(), false);
    }
    ranks[0].wake.retract();
  }
}

TEST(NetPeers, wake_a_sleeper_whose_socket_can_be_written_again) {
  NetRanks ranks(2);
  auto [high, low] = connect(ranks, 1, 0, "control");
  std::vector<char> block(1 << 20);
  while (::send(high.get(), block.data(), block.size(), MSG_NOSIGNAL) > 0) {
  }
  std::uint32_t announced = ranks[1].wake.announce();
  ranks[1].peers->arm(high.get(), true);
  std::thread reader([&, socket = low.get()] {
    ssize_t got = 0;
    do got = ::recv(socket, block.data(), block.size(), 0);
    while (got > 0);
  });
  ranks[1].wake.sleep(announced, std::chrono::seconds(60));
  reader.join();
  EXPECT_GT(::send(high.get(), "x", 1, MSG_NOSIGNAL), 0);
}

TEST(NetPeers, a_disarmed_socket_wakes_nobody_and_a_closed_peer_wakes_its_partner) {
  NetRanks ranks(2);
  auto [high, low] = connect(ranks, 1, 0, "control");
  std::uint32_t announced = ranks[0].wake.announce();
  ranks[0].peers->arm(low.get(), false);
  ranks[1].peers->disarm(high.get());
  high.reset();
  ranks[0].wake.sleep(announced, std::chrono::seconds(60));
  char byte = 0;
  EXPECT_EQ(::recv(low.get(), &byte, 1, 0), 0);
}

TEST(NetPeers, a_peer_that_is_gone_is_named_with_every_address_and_what_it_said) {
  Config config = loopback_config();
  NetRanks ranks(2, config);
  ranks[0].peers.reset();
  auto refused = ranks[1].connection(0, "control");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::peer_lost);
  const std::string& message = refused.error().message;
  EXPECT_NE(message.find("rank 0 (host n0, process 1000) cannot be reached over TCP: "), std::string::npos) << message;
  for (std::string_view endpoint :
       {ranks[1].world.member(Rank{0}).endpoints.substr(0, ranks[1].world.member(Rank{0}).endpoints.find(' '))})
    EXPECT_NE(message.find(std::string(endpoint) + ": Connection refused"), std::string::npos) << message;
  EXPECT_NE(message.find("HOROVOD_GLOO_IFACE"), std::string::npos) << message;
}

TEST(NetPeers, a_peer_that_ended_before_it_connected_is_not_waited_for) {
  Config config = loopback_config();
  config.start_timeout_s = 1;
  NetRanks ranks(2, config);
  ranks[1].peers.reset();  // as if its process had ended
  auto connection = ranks[0].connection(1, "a");
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.error().code, ErrorCode::peer_lost);
  EXPECT_NE(connection.error().message.find("does not listen any more"), std::string::npos)
      << connection.error().message;
  EXPECT_NE(connection.error().message.find(ranks.endpoint(1).text()), std::string::npos);
}

TEST(NetPeers, a_peer_that_still_listens_is_waited_for_however_often_it_is_looked_for) {
  Config config = loopback_config();
  config.start_timeout_s = 0.003;  // the peer is looked for every millisecond
  NetRanks ranks(2, config);
  posix::FileDescriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof here;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&here), length), 0);
  ASSERT_EQ(::listen(listener.get(), 16), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&here), &length), 0);
  ranks[0].world.members[1].endpoints = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
  for (int looks = 0; looks < 5; ++looks) {
    auto asked = ranks[0].peers->connection(Rank{1}, "a");
    ASSERT_TRUE(asked) << asked.error().message;
    EXPECT_FALSE(*asked);
    posix::FileDescriptor look(::accept(listener.get(), nullptr, nullptr));
    ASSERT_TRUE(look);
  }
}

TEST(NetPeers, a_peer_without_an_address_cannot_be_reached) {
  NetRanks ranks(2);
  ranks[1].world.members[0].endpoints = "";
  auto refused = ranks[1].connection(0, "control");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("it has told no address"), std::string::npos) << refused.error().message;
}

TEST(NetPeers, an_address_where_somebody_else_answers_is_passed_over) {
  NetRanks ranks(3);
  // As if every host had a bridge with the same address: rank 1's first address leads to rank 2.
  std::string right = ranks[1].world.member(Rank{0}).endpoints;
  ranks[1].world.members[0].endpoints = ranks.endpoint(2).text() + " " + right;
  auto [high, low] = connect(ranks, 1, 0, "control");
  expect_connected(high, low, "found");
  // If no other address leads to the right rank, the error reports the refusal.
  ranks[1].world.members[0].endpoints = ranks.endpoint(2).text();
  auto refused = ranks[1].connection(0, "other");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("another rank"), std::string::npos) << refused.error().message;
}

TEST(NetPeers, an_address_that_never_answers_does_not_keep_from_the_next) {
  NetRanks ranks(2);
  FileDescriptor silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto at = posix::TcpAddress::parse("127.0.0.1:0").value();
  ASSERT_EQ(::bind(silent.get(), at.data(), at.size()), 0);
  ASSERT_EQ(::listen(silent.get(), 8), 0);  // accepts connections, but never sends anything
  std::string right = ranks[1].world.member(Rank{0}).endpoints;
  ranks[1].world.members[0].endpoints = posix::TcpAddress::here(silent.get())->text() + " " + right;
  auto [high, low] = connect(ranks, 1, 0, "control");
  expect_connected(high, low, "found");
}

TEST(NetPeers, of_an_older_epoch_are_not_taken_for_those_of_a_newer) {
  NetRanks older(2);
  World world = older[0].world;
  world.epoch = 1;
  auto listener = NetListener::open(loopback_config());
  ASSERT_TRUE(listener);
  older[1].world.members[0].endpoints = listener->endpoints();
  auto peers = NetPeers::start(world, loopback_config(), std::move(*listener));
  ASSERT_TRUE(peers);
  auto refused = older[1].connection(0, "control");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("another start of this job"), std::string::npos) << refused.error().message;
}

TEST(NetPeers, work_over_ipv6) {
  NetRanks ranks(2);
  for (int rank : {0, 1})
    for (Member& member : ranks[rank].world.members) {
      auto v6 = member.endpoints.find('[');
      if (v6 == std::string::npos) GTEST_SKIP() << "loopback has no IPv6 address here";
      member.endpoints = member.endpoints.substr(v6);
    }
  auto [high, low] = connect(ranks, 1, 0, "control");
  expect_connected(high, low, "over ::1");
  EXPECT_EQ(ranks[0].peers->describe(low.get()), "::1 (lo)");
}

TEST(NetPeers, a_forked_child_does_not_keep_the_connections) {
  NetRanks ranks(2);
  auto [high, low] = connect(ranks, 1, 0, "control");
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    ::close(pipe_ends[1]);
    [[maybe_unused]] auto got = ::read(pipe_ends[0], &byte, 1);  // blocks until the end of the test
    ::_exit(0);
  }
  ::close(pipe_ends[0]);
  ranks[1].peers->disarm(high.get());
  high.reset();
  wait_readable(low.get());
  char byte = 0;
  EXPECT_EQ(::recv(low.get(), &byte, 1, 0), 0);
  ::close(pipe_ends[1]);
  ::waitpid(child, nullptr, 0);
}

// ---- strangers -----------------------------------------------------------------------------------------------------

TEST(Strangers, with_garbage_are_dropped_unanswered_and_named_once) {
  NetRanks ranks(2);
  std::string log = log_of([&] {
    for (int turn = 0; turn < 3; ++turn) {
      Stranger stranger(ranks.endpoint(0), "127.0.0.7");
      ASSERT_TRUE(stranger.is_connected());
      stranger.say("GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a scanner of ports\r\n\r\n");
      EXPECT_TRUE(stranger.is_dropped_without_an_answer());
    }
  });
  EXPECT_EQ(count(log, "dropped a TCP connection from 127.0.0.7: it does not speak Horovod's protocol"), 1) << log;
  auto [high, low] = connect(ranks, 1, 0, "control");
  expect_connected(high, low, "still here");
}

TEST(Strangers, who_only_look_at_the_port_are_dropped_and_named) {
  NetRanks ranks(2);
  std::string log = log_of([&] {
    for (int turn = 0; turn < 20; ++turn) Stranger scanner(ranks.endpoint(0), "127.0.0.8");
    Stranger last(ranks.endpoint(0), "127.0.0.9");
    ::shutdown(last.descriptor(), SHUT_WR);  // the other direction stays open
    EXPECT_TRUE(last.is_dropped_without_an_answer());
  });
  EXPECT_EQ(count(log, "127.0.0.8"), 1) << log;
  EXPECT_EQ(count(log, "127.0.0.9: it closed the connection before"), 1) << log;
}

TEST(Strangers, who_say_a_byte_at_a_time_or_nothing_are_dropped_after_a_while) {
  Config config = loopback_config();
  config.peer_timeout_s = 1;
  NetRanks ranks(2, config);
  std::string log = log_of([&] {
    Stranger silent(ranks.endpoint(0), "127.0.0.10"), slow(ranks.endpoint(0), "127.0.0.11");
    slow.say("H");
    EXPECT_TRUE(silent.is_dropped_without_an_answer());
    EXPECT_TRUE(slow.is_dropped_without_an_answer());
  });
  for (const char* host : {"127.0.0.10", "127.0.0.11"})
    EXPECT_EQ(count(log, std::string(host) + ": it did not prove within 3 s"), 1) << log;
}

TEST(Strangers, with_a_wrong_secret_are_dropped_and_named) {
  NetRanks ranks(2);
  World world = ranks[1].world;
  world.secret = "a guess";
  tcp::Credentials credentials(world);
  auto guess = tcp::Handshake::dial(credentials, Rank{0});
  std::string log = log_of([&] {
    Stranger stranger(ranks.endpoint(0), "127.0.0.12");
    Buffer hello = guess.take_output();
    stranger.say(to_string(hello));
    char answer[88];
    ASSERT_EQ(::recv(stranger.descriptor(), answer, sizeof answer, MSG_WAITALL), 88);
    stranger.say(std::string(72, 'p'));
    EXPECT_TRUE(stranger.is_dropped_without_an_answer());
  });
  EXPECT_EQ(count(log, "127.0.0.12: it could not prove that it belongs to this job"), 1) << log;
}

TEST(Strangers, of_another_version_are_dropped_and_told_apart) {
  NetRanks ranks(2);
  tcp::Credentials credentials(ranks[1].world);
  Buffer hello = tcp::Handshake::dial(credentials, Rank{0}).take_output();
  hello[8] ^= std::byte{0x40};
  std::string log = log_of([&] {
    Stranger stranger(ranks.endpoint(0), "127.0.0.13");
    stranger.say(to_string(hello));
    char answer[100];
    EXPECT_EQ(::recv(stranger.descriptor(), answer, sizeof answer, MSG_WAITALL), 88) << "so that it can tell, too";
  });
  EXPECT_EQ(count(log, "127.0.0.13: it speaks protocol version"), 1) << log;
}

TEST(Strangers, who_flood_the_port_do_not_keep_peers_out) {
  NetRanks ranks(3);
  std::string log = log_of([&] {
    std::vector<std::unique_ptr<Stranger>> flood;
    for (int i = 0; i < 400; ++i) flood.push_back(std::make_unique<Stranger>(ranks.endpoint(0), "127.0.0.14"));
    for (int higher : {1, 2}) {
      auto [high, low] = connect(ranks, higher, 0, "control");
      expect_connected(high, low, "in spite of it");
    }
    // There were more strangers than the limit allows. The first ones must already have been dropped.
    EXPECT_TRUE(flood.front()->is_dropped_without_an_answer());
  });
  EXPECT_EQ(count(log, "dropped a TCP connection from 127.0.0.14: it has 2"), 1) << log;
}

TEST(Strangers, who_take_all_descriptors_do_not_stop_the_rank) {
  NetRanks ranks(2);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::string log = log_of([&] {
    std::vector<std::unique_ptr<Stranger>> flood;
    for (int i = 0; i < 20; ++i) flood.push_back(std::make_unique<Stranger>(ranks.endpoint(0), "127.0.0.15"));
    int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    rlimit tight{static_cast<rlim_t>(next + 4), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
    ::close(next);
    // The process has no free descriptors. The kernel still accepts connections.
    while (flood.back()->is_connected()) flood.push_back(std::make_unique<Stranger>(ranks.endpoint(0), "127.0.0.15"));
    flood.clear();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    auto [high, low] = connect(ranks, 1, 0, "control");
    expect_connected(high, low, "recovered");
  });
}

// ---- listeners -----------------------------------------------------------------------------------------------------

TEST(NetListener, keeps_to_the_range_of_ports_and_tells_when_it_is_used_up) {
  // Takes four ports that were free a moment ago: the kernel's choice and the next ones. Meanwhile other programs may
  // take some of them, on either address.
  auto probe = NetListener::open(loopback_config());
  ASSERT_TRUE(probe);
  auto first = posix::TcpAddress::parse(probe->endpoints().substr(0, probe->endpoints().find(' ')))->port();
  probe = NetListener{};
  Config config = loopback_config();
  if (first > 65000) first = 65000;
  config.port_range = {first, static_cast<std::uint16_t>(first + 3)};
  std::vector<NetListener> open;
  std::set<std::string> endpoints;
  for (int turn = 0; turn < 5; ++turn) {
    auto listener = NetListener::open(config);
    if (!listener) {
      EXPECT_NE(listener.error().message.find("HOROVOD_PORT_RANGE=" + std::to_string(first) + "-" +
                                              std::to_string(first + 3) + ": no port of it is free on "),
                std::string::npos)
          << listener.error().message;
      EXPECT_FALSE(open.empty());
      return;
    }
    std::string all = listener->endpoints();
    auto port = posix::TcpAddress::parse(all.substr(0, all.find(' ')))->port();
    EXPECT_TRUE(port >= first && port <= first + 3) << port;
    EXPECT_TRUE(endpoints.insert(all).second) << all;
    open.push_back(std::move(*listener));
  }
  FAIL() << "five listeners found a place in four ports";
}

TEST(NetListener, refuses_an_interface_that_does_not_exist) {
  Config config;
  config.network_interfaces = "no-such-if";
  auto listener = NetListener::open(config);
  ASSERT_FALSE(listener);
  EXPECT_NE(listener.error().message.find("no-such-if does not exist"), std::string::npos) << listener.error().message;
  EXPECT_NE(listener.error().message.find("lo (127.0.0.1"), std::string::npos) << listener.error().message;
}

}  // namespace
}  // namespace hvd::connections
