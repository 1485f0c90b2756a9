#include "launcher/wire/lifeline.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bootstrap/store/front_door.hpp"
#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::launcher {
namespace {

constexpr std::chrono::seconds patience(5);
const Deadline soon = Deadline::never();

// Serves the lifelines until at least one of them breaks. Returns the losses.
std::vector<Lifelines::Loss> serve_until_one_breaks(Lifelines& lifelines) {
  for (;;) {
    pollfd readable{lifelines.descriptor(), POLLIN, 0};
    ::poll(&readable, 1, -1);
    if (auto lost = lifelines.serve(); !lost.empty()) return lost;
  }
}

TEST(Lifelines, tell_both_ends_when_the_other_is_gone) {
  auto lifelines = Lifelines::open({2, {}, {}, patience});
  ASSERT_TRUE(lifelines) << lifelines.error().message;
  std::vector<Lifelines::Loss> lost;
  std::string token = (*lifelines)->token(1);
  std::thread server([&] { lost = serve_until_one_breaks(**lifelines); });
  auto line = take_lifeline((*lifelines)->addresses(), token, patience, soon);
  EXPECT_TRUE(line) << line.error().message;
  if (line) line->reset();
  server.join();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].host, 1u);
  EXPECT_TRUE(lost[0].of_agent);

  token = (*lifelines)->token(0);
  std::string addresses = (*lifelines)->addresses();
  Result<posix::FileDescriptor> other = Error(ErrorCode::system, "not tried");
  std::thread agent([&] { other = take_lifeline(addresses, token, patience, soon); });
  while (!(*lifelines)->token(0).empty()) {
    pollfd readable{(*lifelines)->descriptor(), POLLIN, 0};
    ::poll(&readable, 1, -1);
    (void)(*lifelines)->serve();
  }
  agent.join();
  ASSERT_TRUE(other) << other.error().message;
  lifelines->reset();
  pollfd readable{other->get(), POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, -1), 1);
}

TEST(Lifelines, have_a_token_for_each_host_that_comes_later) {
  auto lifelines = Lifelines::open({1, {}, {}, patience});
  ASSERT_TRUE(lifelines) << lifelines.error().message;
  EXPECT_EQ((*lifelines)->token(5000).size(), 32u);
  EXPECT_NE((*lifelines)->token(5000), (*lifelines)->token(4999));
}

TEST(Lifelines, are_not_taken_by_strangers) {
  auto lifelines = Lifelines::open({1, {}, {}, patience});
  ASSERT_TRUE(lifelines) << lifelines.error().message;
  std::string addresses = (*lifelines)->addresses();
  Result<posix::FileDescriptor> line = Error(ErrorCode::system, "not tried");
  std::thread stranger([&] { line = take_lifeline(addresses, std::string(32, 'x'), patience, soon); });
  std::atomic<bool> done = false;
  std::thread server([&] {
    while (!done) {
      pollfd readable{(*lifelines)->descriptor(), POLLIN, 0};
      ::poll(&readable, 1, 20);
      (void)(*lifelines)->serve();
    }
  });
  stranger.join();
  EXPECT_FALSE(line);
  EXPECT_FALSE((*lifelines)->token(0).empty());
  done = true;
  server.join();
}

// Connects as an agent does, over addresses of this machine.
posix::FileDescriptor knock(const std::string& address, const std::string& token) {
  auto begun = posix::begin_connecting(*posix::TcpAddress::parse(address), std::nullopt);
  pollfd writable{begun.socket.get(), POLLOUT, 0};
  EXPECT_EQ(::poll(&writable, 1, -1), 1);
  EXPECT_EQ(posix::outcome_of_connecting(begun.socket.get()), 0);
  EXPECT_EQ(::write(begun.socket.get(), token.data(), 16), 16);
  return std::move(begun.socket);
}

TEST(Lifelines, are_taken_by_all_agents_that_came_while_horovodrun_was_busy) {
  constexpr std::size_t hosts = 300;
  bootstrap::make_room_for_descriptors(2 * hosts);
  auto lifelines = Lifelines::open({hosts, {"lo"}, {}, patience});
  ASSERT_TRUE(lifelines) << lifelines.error().message;
  std::string address = (*lifelines)->addresses();
  address = address.substr(0, address.find(','));
  std::vector<posix::FileDescriptor> agents;
  std::vector<std::string> tokens;
  for (std::size_t host = 0; host < hosts; ++host) tokens.push_back((*lifelines)->token(host));
  for (const std::string& token : tokens) agents.push_back(knock(address, token));
  std::size_t taken = 0;
  for (std::size_t turn = 0; taken < hosts; ++turn) {
    pollfd readable{(*lifelines)->descriptor(), POLLIN, 0};
    ASSERT_EQ(::poll(&readable, 1, 20000), 1) << taken << " of " << hosts << " agents are in";
    EXPECT_TRUE((*lifelines)->serve().empty());
    taken = 0;
    for (std::size_t host = 0; host < hosts; ++host) taken += (*lifelines)->token(host).empty();
  }
  for (std::size_t host = 0; host < hosts; ++host) {
    char answer[16];
    ASSERT_EQ(::recv(agents[host].get(), answer, sizeof answer, MSG_WAITALL | MSG_DONTWAIT), 16) << "agent " << host;
    EXPECT_EQ(std::string(answer, 16), tokens[host].substr(16));
  }
}

TEST(Lifelines, are_taken_at_the_second_try_by_who_was_closed_on_at_the_first) {
  const std::string token(32, 't');
  auto listener = posix::listen_on_tcp(*posix::TcpAddress::parse("127.0.0.1:0"));
  ASSERT_TRUE(listener);
  std::thread horovodrun([&] {
    posix::FileDescriptor agent;
    for (int round = 0; round < 2; ++round) {
      pollfd readable{listener->get(), POLLIN, 0};
      ::poll(&readable, 1, -1);
      agent = std::move(posix::accept_from_tcp(listener->get())->socket);
      if (round == 0) agent.reset();
    }
    pollfd readable{agent.get(), POLLIN, 0};
    ::poll(&readable, 1, -1);
    EXPECT_EQ(::write(agent.get(), token.data() + 16, 16), 16);
  });
  auto line = take_lifeline(posix::TcpAddress::here(listener->get())->text(), token, patience,
                            Deadline::after(std::chrono::seconds(20)));
  EXPECT_TRUE(line) << line.error().message;
  horovodrun.join();
}

TEST(Lifelines, need_an_interface_that_is_there) {
  EXPECT_FALSE(Lifelines::open({1, {"no-such-interface"}, {}, patience}));
}

}  // namespace
}  // namespace hvd::launcher
