#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <latch>
#include <tuple>

#include "bootstrap/selection/selection.hpp"
#include "bootstrap/store/front_door.hpp"
#include "bootstrap/store/later_meetings.hpp"
#include "bootstrap/store/sealed_stream.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/sockets/tcp_socket.hpp"
#include "store_thread.hpp"

namespace hvd::bootstrap {
namespace {

constexpr const char* secret = "what only the job's ranks know";

std::unique_ptr<TcpStoreThread> store_of(int size) {
  TcpStoreServer::Options options;
  options.job = "job-of-the-test";
  options.size = size;
  options.secret = secret;
  options.interfaces = {"lo"};
  auto store = TcpStoreThread::start(std::move(options));
  EXPECT_TRUE(store) << store.error().message;
  return std::move(*store);
}

Result<std::unique_ptr<StoreClient>> enter(const TcpStoreThread& store, int rank, int size, std::string_view key) {
  return enter_tcp_store(store.server().addresses(), std::to_string(store.server().port()), key, Rank{rank}, size,
                         soon());
}

posix::FileDescriptor stranger_at(const TcpStoreThread& store) {
  posix::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(store.server().port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

// Reads until the other end closes the connection. Returns the number of bytes.
std::size_t bytes_until_closed(const posix::FileDescriptor& socket) {
  std::size_t total = 0;
  char bytes[4096];
  for (ssize_t got = ::recv(socket.get(), bytes, sizeof bytes, 0); got > 0;
       got = ::recv(socket.get(), bytes, sizeof bytes, 0))
    total += static_cast<std::size_t>(got);
  return total;
}

TEST(TcpStore, carries_values_between_ranks) {
  auto store = store_of(3);
  on_threads(3, [&](int rank) {
    auto client = enter(*store, rank, 3, secret);
    ASSERT_TRUE(client) << client.error().message;
    EXPECT_EQ((*client)->job(), "job-of-the-test");
    std::string large(store::largest_value, static_cast<char>('a' + rank));
    ASSERT_TRUE((*client)->put("large", as_bytes(large), soon()));
    ASSERT_TRUE((*client)->fence(soon()));
    for (int from = 0; from < 3; ++from)
      EXPECT_EQ(to_string(*(*client)->get(Rank{from}, "large", soon()))[0], static_cast<char>('a' + from));
  });
}

TEST(TcpStore, lets_a_rank_come_back_that_had_left) {
  auto store = store_of(1);
  for (int round = 0; round < 20; ++round) {
    auto client = enter(*store, 0, 1, secret);
    ASSERT_TRUE(client) << client.error().message;
    ASSERT_TRUE((*client)->fence(soon()));
    ASSERT_TRUE((*client)->leave(soon()));
  }
}

TEST(TcpStore, tells_nothing_to_who_does_not_know_the_secret) {
  auto store = store_of(1);
  auto client = enter(*store, 0, 1, "something that is quite wrong");
  ASSERT_FALSE(client);
  EXPECT_NE(client.error().message.find("HOROVOD_SECRET_KEY"), std::string::npos) << client.error().message;
  EXPECT_TRUE(enter(*store, 0, 1, secret));
}

TEST(TcpStore, drops_garbage_and_goes_on) {
  auto store = store_of(1);
  auto client = enter(*store, 0, 1, secret);
  ASSERT_TRUE(client);
  for (std::string garbage :
       {std::string("GET / HTTP/1.1\r\nHost: here\r\nAccept: anything at all, please, and thank you very much\r\n\r\n"),
        std::string(100'000, '\xff'), std::string(64, '\0')}) {
    posix::FileDescriptor stranger = stranger_at(*store);
    ::send(stranger.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    EXPECT_LE(bytes_until_closed(stranger), 44u) << "more than a greeting";
  }
  std::vector<posix::FileDescriptor> silent;  // more connections than the store lets wait
  for (int i = 0; i < 50; ++i) silent.push_back(stranger_at(*store));
  EXPECT_TRUE((*client)->fence(soon()));
}

TEST(TcpStore, speaks_of_some_strangers_and_not_of_all) {
  auto store = store_of(1);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 30; ++i) {
    posix::FileDescriptor stranger = stranger_at(*store);
    std::string garbage(64, 'x');
    ::send(stranger.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    bytes_until_closed(stranger);
  }
  store.reset();
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 8) << said;
  EXPECT_NE(said.find("further ones will not be reported"), std::string::npos) << said;
}

TEST(TcpStore, lets_strangers_that_hold_all_places_keep_no_rank_out) {
  auto store = store_of(1);
  constexpr std::size_t count = 5 * FrontDoor::spare_places;
  make_room_for_descriptors(2 * count);
  ::testing::internal::CaptureStderr();
  std::vector<posix::FileDescriptor> silent;
  for (std::size_t i = 0; i < count; ++i) silent.push_back(stranger_at(*store));
  auto client = enter(*store, 0, 1, secret);
  EXPECT_TRUE(client) << client.error().message;
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("connections, the oldest from 127.0.0.1:"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST(TcpStore, seats_all_ranks_that_came_while_it_was_busy) {
  constexpr int size = 1500;
  make_room_for_descriptors(2 * size);
  TcpStoreServer::Options options;
  options.job = "job-of-the-test";
  options.size = size;
  options.secret = secret;
  options.interfaces = {"lo"};
  auto server = TcpStoreServer::open(std::move(options));
  ASSERT_TRUE(server) << server.error().message;
  auto loopback = posix::TcpAddress::parse("127.0.0.1:" + std::to_string((*server)->port()));
  std::vector<std::unique_ptr<SealedStream>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    auto begun = posix::begin_connecting(*loopback, std::nullopt);
    ASSERT_TRUE(begun.socket) << rank;
    ranks.push_back(std::make_unique<SealedStream>(std::move(begun.socket), SealedStream::Side::dialled, secret,
                                                   store::largest_message));
    Buffer hello = store::message(store::Verb::hello, 1);
    ByteWriter out(hello);
    out.put(store::wire_version);
    out.put(std::int32_t{rank});
    out.put(std::int32_t{size});
    out.put(std::int32_t{1});
    ASSERT_TRUE(ranks.back()->send(hello));
  }
  std::vector<std::unique_ptr<SealedStream>> entered;  // streams that stay open until the end of the test
  std::size_t welcome = 0;
  Buffer answer;
  while (welcome < size) {
    pollfd readable{(*server)->descriptor(), POLLIN, 0};
    ASSERT_EQ(::poll(&readable, 1, 20000), 1) << welcome << " of " << size << " ranks are in";
    (*server)->serve();
    for (auto& rank : ranks) {
      if (rank == nullptr) continue;
      auto got = rank->receive(answer);
      ASSERT_TRUE(got) << got.error().message;
      ASSERT_NE(*got, posix::Delivery::closed) << welcome << " of " << size << " ranks are in";
      if (*got != posix::Delivery::done) continue;
      ASSERT_EQ(answer[0], static_cast<std::byte>(store::Verb::welcome));
      entered.push_back(std::move(rank));
      ++welcome;
    }
  }
}

TEST(TcpStore, is_entered_at_the_second_try_by_who_was_closed_on_at_the_first) {
  auto listener = posix::listen_on_tcp(*posix::TcpAddress::parse("127.0.0.1:0"));
  ASSERT_TRUE(listener);
  std::thread store([&] {
    posix::FileDescriptor socket;
    for (int round = 0; round < 2; ++round) {
      pollfd readable{listener->get(), POLLIN, 0};
      ::poll(&readable, 1, -1);
      socket = std::move(posix::accept_from_tcp(listener->get())->socket);
      if (round == 0) socket.reset();
    }
    SealedStream stream(std::move(socket), SealedStream::Side::accepted, secret, store::largest_message);
    (void)stream.flush();
    for (Buffer hello;;) {
      auto got = stream.receive(hello);
      ASSERT_TRUE(got) << got.error().message;
      if (*got == posix::Delivery::done) break;
      pollfd readable{stream.descriptor(), POLLIN, 0};
      ::poll(&readable, 1, -1);
    }
    Buffer welcome = store::message(store::Verb::welcome, 1);
    ByteWriter(welcome).put_string("job");
    EXPECT_EQ(*stream.send(welcome), posix::Delivery::done);
  });
  std::string port = std::to_string(posix::TcpAddress::here(listener->get())->port());
  auto client = enter_tcp_store("127.0.0.1", port, secret, Rank{0}, 1, soon());
  EXPECT_TRUE(client) << client.error().message;
  store.join();
}

TEST(TcpStore, is_named_when_it_is_not_there) {
  auto store = store_of(1);
  std::string port = std::to_string(store->server().port());
  store.reset();
  auto client = enter_tcp_store("127.0.0.1", port, secret, Rank{0}, 1, soon());
  ASSERT_FALSE(client);
  EXPECT_NE(client.error().message.find("127.0.0.1:" + port), std::string::npos) << client.error().message;
  EXPECT_FALSE(enter_tcp_store("", port, secret, Rank{0}, 1, soon()));
  EXPECT_FALSE(enter_tcp_store("no.such.host.invalid", port, secret, Rank{0}, 1, soon()));
}

TEST(TcpStore, takes_a_port_of_the_range_and_says_when_none_is_free) {
  auto taken = store_of(1);
  TcpStoreServer::Options options;
  options.secret = secret;
  options.interfaces = {"lo"};
  options.first_port = options.last_port = taken->server().port();
  auto none = TcpStoreServer::open(options);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("taken"), std::string::npos) << none.error().message;
  options.interfaces = {"eth77"};
  EXPECT_NE(TcpStoreServer::open(options).error().message.find("lo"), std::string::npos);
  options.secret = "short";
  EXPECT_FALSE(TcpStoreServer::open(options));
}

TEST(TcpStore, is_found_by_the_rendezvous_bootstrap) {
  auto store = store_of(2);
  auto variables = store->server().variables();
  on_threads(2, [&](int rank) {
    Environment environment({{"HOROVOD_RANK", std::to_string(rank)}, {"HOROVOD_SIZE", "2"}});
    for (const auto& [name, value] : variables) environment.set(name, value);
    std::vector<Notice> notices;
    auto chosen = choose(environment, Config(), notices);
    ASSERT_TRUE(chosen) << chosen.error().message;
    EXPECT_STREQ(chosen->bootstrap->name(), "rendezvous");
    ASSERT_TRUE(chosen->bootstrap->put("card", as_bytes(std::to_string(rank))));
    ASSERT_TRUE(chosen->bootstrap->fence(soon()));
    EXPECT_EQ(to_string(*chosen->bootstrap->get(Rank{1 - rank}, "card", soon())), std::to_string(1 - rank));
  });
  Environment without_key(
      {{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "2"}, {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"}});
  std::vector<Notice> notices;
  EXPECT_NE(choose(without_key, Config(), notices).error().message.find("HOROVOD_GLOO_RENDEZVOUS_PORT"),
            std::string::npos);
}

// Rank 0 serves on a port that was free a moment ago. The others come first, so they have to wait.
TEST(TcpStore, is_served_by_rank_0_and_waited_for_if_the_variables_say_so) {
  constexpr int size = 3;
  const std::string port = std::to_string(store_of(1)->server().port());
  Environment environment({{"HOROVOD_SIZE", std::to_string(size)},
                           {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "127.0.0.1"},
                           {"HOROVOD_GLOO_RENDEZVOUS_PORT", port},
                           {"HOROVOD_RENDEZVOUS_SERVE", "1"},
                           {"HOROVOD_SECRET_KEY", secret}});
  std::vector<std::string> warnings;
  Config config = *Config::from(environment, warnings);
  config.network_interfaces = "lo";
  std::latch others(size - 1);
  on_threads(size, [&](int rank) {
    Environment mine = environment;
    mine.set("HOROVOD_RANK", std::to_string(rank));
    std::vector<Notice> notices;
    if (rank == 0) others.wait();
    else others.count_down();
    auto chosen = choose(mine, config, notices);
    ASSERT_TRUE(chosen) << chosen.error().message;
    ASSERT_TRUE(chosen->bootstrap->put("card", as_bytes(std::to_string(rank))));
    ASSERT_TRUE(chosen->bootstrap->fence(soon()));
    EXPECT_EQ(to_string(*chosen->bootstrap->get(Rank{(rank + 1) % size}, "card", soon())),
              std::to_string((rank + 1) % size));
  });
  Environment first = environment;
  first.set("HOROVOD_RANK", "0");
  std::vector<Notice> notices;
  for (auto [name, value, what] : {std::tuple("HOROVOD_SECRET_KEY", "short", "16 bytes"),
                                   std::tuple("HOROVOD_GLOO_RENDEZVOUS_PORT", "0", "from 1 to 65535")}) {
    Environment wrong = first;
    wrong.set(name, value);
    auto chosen = choose(wrong, config, notices);
    ASSERT_FALSE(chosen);
    EXPECT_NE(chosen.error().message.find(what), std::string::npos) << chosen.error().message;
  }
  first.set("HOROVOD_RANK", "1");
  config.start_timeout_s = 0.1;
  auto alone = choose(first, config, notices);
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message.find("127.0.0.1:" + port), std::string::npos) << alone.error().message;
}

TEST(TcpStore, is_spoken_with_by_one_rank_of_each_host) {
  constexpr int size = 7;  // on hosts of 3, 3 and 1 ranks
  auto store = store_of(size);
  auto variables = store->server().variables();
  on_threads(size, [&](int rank) {
    Environment environment({{"HOROVOD_RANK", std::to_string(rank)},
                             {"HOROVOD_SIZE", std::to_string(size)},
                             {"HOROVOD_HOSTNAME", "host" + std::to_string(rank / 3)},
                             {"HOROVOD_LOCAL_RANK", std::to_string(rank % 3)},
                             {"HOROVOD_LOCAL_SIZE", rank == 6 ? "1" : "3"}});
    for (const auto& [name, value] : variables) environment.set(name, value);
    std::vector<Notice> notices;
    auto chosen = choose(environment, Config(), notices);
    ASSERT_TRUE(chosen) << chosen.error().message;
    Bootstrap& bootstrap = *chosen->bootstrap;
    for (const char* key : {"first", "second"}) {
      auto cards = *bootstrap.exchange(key, {key, std::to_string(rank)}, soon());
      ASSERT_TRUE(cards) << cards.error().message;
      for (int from = 0; from < size; ++from) {
        ASSERT_EQ(cards->of(Rank{from}).texts.size(), 2u);
        EXPECT_EQ(cards->of(Rank{from}).texts[1], std::to_string(from));
      }
    }
    // put and fence are not shared by the ranks of a host: every rank makes its own requests.
    ASSERT_TRUE(bootstrap.put("value", as_bytes(std::to_string(rank))));
    ASSERT_TRUE(bootstrap.fence(soon()));
    EXPECT_EQ(to_string(*bootstrap.get(Rank{size - 1 - rank}, "value", soon())), std::to_string(size - 1 - rank));
  });
}

TEST(LaterMeetings, happen_as_often_as_the_ranks_like) {
  constexpr int size = 3;
  std::vector<LaterMeetings> meetings(size);
  Config config;
  config.network_interfaces = "lo";
  Buffer invitation = meetings[0].open({Rank{0}, size, "job"}, config);
  on_threads(size, [&](int rank) {
    auto& mine = meetings[static_cast<std::size_t>(rank)];
    if (rank > 0) {
      ASSERT_TRUE(mine.invited({Rank{rank}, size, "job"}, invitation));
    }
    for (int round = 0; round < 10; ++round) {
      std::string key = "round" + std::to_string(round);
      ASSERT_TRUE(mine.put(key, as_bytes(std::to_string(rank * 100 + round))));
      auto fenced = mine.fence(soon());
      ASSERT_TRUE(fenced) << fenced.error().message;
      for (int from = 0; from < size; ++from)
        EXPECT_EQ(to_string(*mine.get(Rank{from}, key)), std::to_string(from * 100 + round));
      EXPECT_FALSE(mine.get(Rank{0}, "never put"));
    }
  });
}

TEST(LaterMeetings, that_cannot_be_had_are_no_error_before_they_are_wanted) {
  LaterMeetings first, second;
  Config config;
  config.network_interfaces = "no-such-interface";
  Buffer invitation = first.open({Rank{0}, 2, "job"}, config);
  ASSERT_TRUE(second.invited({Rank{1}, 2, "job"}, invitation));
  for (LaterMeetings* each : {&first, &second}) {
    auto fenced = each->fence(soon());
    ASSERT_FALSE(fenced);
    EXPECT_NE(fenced.error().message.find("no-such-interface"), std::string::npos) << fenced.error().message;
  }
}

// The two ends of a stream over a socket pair, and a copy of the bytes that the dialling side has sent.
class SealedStreams : public ::testing::Test {
 protected:
  void connect(std::string_view their_secret = secret) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    acceptor_.emplace(posix::FileDescriptor(ends[0]), SealedStream::Side::accepted, secret, 1000);
    dialler_.emplace(posix::FileDescriptor(ends[1]), SealedStream::Side::dialled, their_secret, 1000);
  }
  // Lets both ends send what they can. Returns what the acceptor then receives.
  Result<posix::Delivery> exchange(Buffer& message) {
    acceptor_->flush();
    Buffer none;
    (void)dialler_->receive(none);
    return acceptor_->receive(message);
  }
  std::optional<SealedStream> acceptor_, dialler_;
};

TEST_F(SealedStreams, carry_messages_both_ways) {
  connect();
  ASSERT_TRUE(dialler_->send(as_bytes("said before the handshake")));
  Buffer message;
  ASSERT_EQ(*exchange(message), posix::Delivery::done);
  EXPECT_EQ(to_string(message), "said before the handshake");
  for (std::size_t length : {0u, 1u, 1000u}) {
    ASSERT_TRUE(acceptor_->send(as_bytes(std::string(length, 'x'))));
    ASSERT_EQ(*dialler_->receive(message), posix::Delivery::done);
    EXPECT_EQ(message.size(), length);
  }
}

TEST_F(SealedStreams, refuse_another_secret_before_a_message_is_seen) {
  connect("another secret");
  (void)dialler_->send(as_bytes("hello"));
  Buffer message;
  EXPECT_FALSE(exchange(message));
  EXPECT_TRUE(message.empty());
}

TEST_F(SealedStreams, refuse_a_message_that_was_changed_or_repeated_on_the_way) {
  for (bool change : {true, false}) {
    int near[2], far[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, near), 0);
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, far), 0);
    posix::FileDescriptor near_end{near[1]}, far_end{far[1]};
    SealedStream acceptor(posix::FileDescriptor{near[0]}, SealedStream::Side::accepted, secret, 1000);
    SealedStream dialler(posix::FileDescriptor{far[0]}, SealedStream::Side::dialled, secret, 1000);
    char bytes[4096];
    auto pass = [&](int from, int to) {
      ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
      ::send(to, bytes, static_cast<std::size_t>(got), 0);
      return static_cast<std::size_t>(got);
    };
    acceptor.flush();
    pass(near_end.get(), far_end.get());
    Buffer message;
    (void)dialler.receive(message);
    pass(far_end.get(), near_end.get());
    (void)acceptor.receive(message);
    ASSERT_TRUE(acceptor.is_open());
    ASSERT_TRUE(dialler.send(as_bytes("pay 1")));
    ssize_t got = ::recv(far_end.get(), bytes, sizeof bytes, 0);
    auto size = static_cast<std::size_t>(got);
    if (change) bytes[8] = '9';
    ::send(near_end.get(), bytes, size, 0);
    if (change) {
      EXPECT_FALSE(acceptor.receive(message));
      continue;
    }
    EXPECT_EQ(*acceptor.receive(message), posix::Delivery::done);
    ::send(near_end.get(), bytes, size, 0);
    EXPECT_FALSE(acceptor.receive(message)) << "the same once more";
  }
}

}  // namespace
}  // namespace hvd::bootstrap
