#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <latch>
#include <thread>
#include <vector>

#include "native/posix/sockets/tcp_socket.hpp"
#include "ranks_as_threads.hpp"
#include "sanitized.hpp"
#include "transport/registry.hpp"

namespace hvd::transport::tcp_link_test {  // other transports' tests use equal names
namespace {

using testing::Ensemble;
using testing::made_up_world;
using testing::RankThread;
using testing::run_ranks;

std::unique_ptr<Transport> tcp_for(RankThread& rank) {
  rank.use_net();
  for (const Maker& maker : registry())
    if (std::string_view(maker.name) == "tcp") return maker.make(rank.surroundings);
  ADD_FAILURE() << "tcp is not in the registry";
  return nullptr;
}

// A rank with a link to all other ranks.
struct Connected {
  explicit Connected(RankThread& rank, std::string_view name = "world") : thread(rank), transport(tcp_for(rank)) {
    auto connecting = transport->connect(testing::everybody(thread.world), name, thread.exchange);
    EXPECT_TRUE(connecting);
    EXPECT_EQ(testing::drive(**connecting, thread.wake), Progress::done);
    link = (*connecting)->take();
  }
  RankThread& thread;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Link> link;
};

Channel channel(std::uint64_t batch, std::uint32_t chunk = 0) {
  return {Sequence{batch}, 1, chunk};
}

std::vector<std::byte> message(int from, int to, std::uint64_t salt, std::size_t bytes) {
  std::vector<std::byte> content(bytes);
  std::uint64_t state = salt * 64 + static_cast<std::uint64_t>(from * 8 + to) + 1;
  for (std::byte& byte : content) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return content;
}

// Polls until all operations are over, and sleeps while nothing moves.
struct Pendings {
  Progress step() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      Progress progress = link.poll(list[i]);
      if (progress == Progress::failed) return Progress::failed;
      if (progress == Progress::pending) list[kept++] = list[i];
    }
    list.resize(kept);
    return list.empty() ? Progress::done : Progress::pending;
  }
  Link& link;
  std::vector<Pending> list;
};
Progress drive(Connected& rank, std::vector<Pending> list) {
  Pendings pendings{*rank.link, std::move(list)};
  return testing::drive(pendings, rank.thread.wake, *rank.link);
}

TEST(TcpTransport, reaches_ranks_that_have_told_an_address) {
  Ensemble ensemble(made_up_world({1, 1}));
  RankThread rank(ensemble, Rank{0});
  auto everybody = testing::everybody(rank.world);
  for (const Maker& maker : registry())
    if (std::string_view(maker.name) == "tcp") {
      EXPECT_FALSE(maker.make(rank.surroundings)->reaches(everybody, DeviceKind::host)) << "there are no connections";
    }
  auto transport = tcp_for(rank);
  EXPECT_TRUE(transport->reaches(everybody, DeviceKind::host));
  EXPECT_FALSE(transport->reaches(everybody, DeviceKind::cuda));
  EXPECT_FALSE(transport->reaches(Group{{Rank{1}}, Seat{-1}}, DeviceKind::host));
  EXPECT_FALSE(transport->reaches(Group{{Rank{0}, Rank{2}}, Seat{0}}, DeviceKind::host));
  rank.world.members[1].endpoints = "";
  EXPECT_FALSE(transport->reaches(everybody, DeviceKind::host));
  EXPECT_FALSE(transport->connect(everybody, "world", rank.exchange));
}

TEST(TcpLink, carries_messages_of_any_size_between_all_and_to_oneself) {
  for (int size : {1, 2, 3, 5}) {
    run_ranks(std::vector<int>(static_cast<std::size_t>(size), 1), [size](RankThread& thread) {
      Connected rank(thread);
      int me = thread.rank().value;
      std::uint64_t batch = 0;
      for (std::size_t bytes : {0, 1, 1000, 16'360, 16'384, 65'536, 300'001, 3'000'000}) {
        if (testing::is_sanitized && bytes > 300'001) continue;
        thread.note("messages of " + std::to_string(bytes));
        std::vector<std::vector<std::byte>> sent,
            received(static_cast<std::size_t>(size), std::vector<std::byte>(bytes));
        for (int to = 0; to < size; ++to) sent.push_back(message(me, to, batch, bytes));
        std::vector<Pending> pendings;
        for (int other = 0; other < size; ++other) {
          auto index = static_cast<std::size_t>(other);
          pendings.push_back(rank.link->send(Seat{other}, sent[index], channel(batch)));
          pendings.push_back(rank.link->recv(Seat{other}, received[index], channel(batch)));
        }
        ASSERT_EQ(drive(rank, pendings), Progress::done);
        for (int from = 0; from < size; ++from)
          ASSERT_EQ(received[static_cast<std::size_t>(from)], message(from, me, batch, bytes));
        ++batch;
      }
    });
  }
}

TEST(TcpLink, matches_by_channel_in_whatever_order_messages_are_expected) {
  run_ranks({1, 1}, [](RankThread& thread) {
    Connected rank(thread);
    constexpr std::uint32_t count = 60;
    std::vector<std::vector<std::byte>> contents(count);
    auto bytes_of = [](std::uint32_t i) { return i * i * 50; };  // up to 174 050
    std::vector<Pending> pendings;
    if (thread.rank() == Rank{0}) {
      for (std::uint32_t i = 0; i < count; ++i) {
        contents[i] = message(0, 1, i, bytes_of(i));
        pendings.push_back(rank.link->send(Seat{1}, contents[i], channel(7, i)));
      }
    } else {
      for (std::uint32_t i = count; i-- > 0;) {
        contents[i].resize(bytes_of(i));
        pendings.push_back(rank.link->recv(Seat{0}, contents[i], channel(7, i)));
        if (i % 3 != 0) continue;
        ASSERT_EQ(drive(rank, std::exchange(pendings, {})), Progress::done);  // earlier messages are stored aside
      }
    }
    ASSERT_EQ(drive(rank, pendings), Progress::done);
    if (thread.rank() == Rank{0}) return;
    for (std::uint32_t i = 0; i < count; ++i) EXPECT_EQ(contents[i], message(0, 1, i, bytes_of(i)));
  });
}

TEST(TcpLink, keeps_the_order_of_messages_of_one_channel) {
  run_ranks({1, 1}, [](RankThread& thread) {
    Connected rank(thread);
    std::vector<std::uint32_t> numbers(2000);
    std::uint32_t other = 0;
    std::vector<Pending> pendings;
    for (std::uint32_t i = 0; i < numbers.size(); ++i) {
      std::span<std::uint32_t> one(&numbers[i], 1);
      if (thread.rank() == Rank{0}) {
        numbers[i] = i;
        pendings.push_back(rank.link->send(Seat{1}, std::as_bytes(one), channel(1)));
      } else {
        pendings.push_back(rank.link->recv(Seat{0}, std::as_writable_bytes(one), channel(1)));
      }
    }
    std::span<std::uint32_t> last(&other, 1);
    if (thread.rank() == Rank{0}) pendings.push_back(rank.link->send(Seat{1}, std::as_bytes(last), channel(2)));
    else pendings.insert(pendings.begin(), rank.link->recv(Seat{0}, std::as_writable_bytes(last), channel(2)));
    ASSERT_EQ(drive(rank, pendings), Progress::done);
    for (std::uint32_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i);
  });
}

TEST(TcpLink, links_of_different_names_do_not_hear_each_other) {
  run_ranks({1, 1}, [](RankThread& thread) {
    Connected one(thread, "one"), two(thread, "two");
    std::vector<std::byte> first(8, std::byte{1}), second(8, std::byte{2}), got(8);
    if (thread.rank() == Rank{0}) {
      Pending send = one.link->send(Seat{1}, first, channel(1));
      EXPECT_EQ(one.link->poll(send), Progress::pending) << "the peer has not asked for the connection yet";
      ASSERT_EQ(drive(two, {two.link->send(Seat{1}, second, channel(1))}), Progress::done);
      ASSERT_EQ(drive(one, {send}), Progress::done);
      ASSERT_EQ(drive(one, {one.link->recv(Seat{1}, got, channel(2))}), Progress::done);
    } else {
      ASSERT_EQ(drive(two, {two.link->recv(Seat{0}, got, channel(1))}), Progress::done);
      EXPECT_EQ(got, second);
      ASSERT_EQ(drive(one, {one.link->recv(Seat{0}, got, channel(1))}), Progress::done);
      EXPECT_EQ(got, first);
      ASSERT_EQ(drive(one, {one.link->send(Seat{0}, got, channel(2))}), Progress::done);
    }
  });
}

TEST(TcpLink, a_message_of_another_length_fails_only_its_receive_and_names_both) {
  run_ranks({1, 1}, [](RankThread& thread) {
    Connected rank(thread);
    std::vector<std::byte> wrong(100'000), right(10), expected(50'000, std::byte{7});
    if (thread.rank() == Rank{0}) {
      ASSERT_EQ(drive(rank, {rank.link->send(Seat{1}, wrong, channel(1)), rank.link->send(Seat{1}, right, channel(2))}),
                Progress::done);
      ASSERT_EQ(drive(rank, {rank.link->recv(Seat{1}, right, channel(3))}), Progress::done);
    } else {
      ASSERT_EQ(drive(rank, {rank.link->recv(Seat{0}, expected, channel(1))}), Progress::failed);
      EXPECT_EQ(rank.link->failure().code, ErrorCode::mismatch);
      const std::string& text = rank.link->failure().message;
      EXPECT_NE(text.find("expected a message of 50000 bytes from rank 0 (host n0"), std::string::npos) << text;
      EXPECT_NE(text.find("found one of 100000"), std::string::npos) << text;
      EXPECT_EQ(expected, std::vector<std::byte>(50'000, std::byte{7}));
      ASSERT_EQ(drive(rank, {rank.link->recv(Seat{0}, right, channel(2))}), Progress::done);
      ASSERT_EQ(drive(rank, {rank.link->send(Seat{0}, right, channel(3))}), Progress::done);
    }
  });
}

TEST(TcpLink, a_sender_that_runs_ahead_waits_and_what_nobody_expects_is_not_read) {
  std::latch has_looked(1);
  run_ranks({1, 1}, [&](RankThread& thread) {
    Connected rank(thread);
    constexpr std::uint32_t count = 40;
    constexpr std::size_t bytes = 2 << 20;  // 80 MB in all: more than the buffers of any socket
    std::vector<std::byte> content(bytes, std::byte{3}), answer(1);
    if (thread.rank() == Rank{0}) {
      ASSERT_EQ(drive(rank, {rank.link->send(Seat{1}, answer, channel(0))}), Progress::done);
      std::vector<Pending> sends;
      for (std::uint32_t i = 0; i < count; ++i) sends.push_back(rank.link->send(Seat{1}, content, channel(1, 4 * i)));
      std::erase_if(sends, [&](Pending send) { return rank.link->poll(send) == Progress::done; });
      EXPECT_LT(0u, sends.size()) << "nobody has asked for any of them";
      has_looked.count_down();
      ASSERT_EQ(drive(rank, sends), Progress::done);
    } else {
      ASSERT_EQ(drive(rank, {rank.link->recv(Seat{0}, answer, channel(0))}), Progress::done);
      has_looked.wait();
      for (std::uint32_t i = 0; i < count; ++i) {
        ASSERT_EQ(drive(rank, {rank.link->recv(Seat{0}, content, channel(1, 4 * i))}), Progress::done);
        ASSERT_EQ(content[bytes - 1], std::byte{3});
      }
    }
  });
}

TEST(TcpLink, a_peer_that_is_busy_for_longer_than_the_patience_is_not_taken_for_dead) {
  Config config;
  config.peer_timeout_s = 1;
  Ensemble ensemble(made_up_world({1, 1}), config);
  std::latch has_waited(1);
  run_ranks(ensemble, [&](RankThread& thread) {
    Connected rank(thread);
    std::vector<std::byte> content(64 << 20), byte(1);
    if (thread.rank() == Rank{1}) {
      ASSERT_EQ(drive(rank, {rank.link->recv(Seat{0}, byte, channel(0))}), Progress::done);
      has_waited.wait();  // this rank reads nothing, but its kernel answers
      ASSERT_EQ(drive(rank, {rank.link->recv(Seat{0}, content, channel(1))}), Progress::done);
      return;
    }
    ASSERT_EQ(drive(rank, {rank.link->send(Seat{1}, byte, channel(0))}), Progress::done);
    Pending send = rank.link->send(Seat{1}, content, channel(1));
    for (auto until = Deadline::after(2 * posix::least_patience); !until.passed();) {
      std::uint32_t announced = thread.wake.announce();
      rank.link->arm();
      ASSERT_EQ(rank.link->poll(send), Progress::pending);
      thread.wake.sleep(announced, until.left());
    }
    has_waited.count_down();
    ASSERT_EQ(drive(rank, {send}), Progress::done);
  });
}

TEST(TcpLink, what_was_sent_before_a_link_closed_still_arrives_and_then_its_absence_is_told) {
  run_ranks({1, 1}, [](RankThread& thread) {
    Connected rank(thread);
    std::vector<std::byte> content(100'000, std::byte{3}), never(1);
    if (thread.rank() == Rank{0}) {
      ASSERT_EQ(
          drive(rank, {rank.link->send(Seat{1}, content, channel(1)), rank.link->send(Seat{1}, content, channel(2))}),
          Progress::done);
      rank.link.reset();
      return;
    }
    std::vector<std::byte> first(100'000), second(100'000);
    ASSERT_EQ(drive(rank, {rank.link->recv(Seat{0}, second, channel(2))}), Progress::done);
    Pendings last{*rank.link, {rank.link->recv(Seat{0}, never, channel(3))}};
    ASSERT_EQ(testing::drive(last, thread.wake, *rank.link), Progress::failed);
    EXPECT_EQ(rank.link->failure().code, ErrorCode::peer_lost);
    const std::string& text = rank.link->failure().message;
    EXPECT_NE(text.find("rank 0 (host n0, process 1000) has closed its TCP connection"), std::string::npos) << text;
    ASSERT_EQ(drive(rank, {rank.link->recv(Seat{0}, first, channel(1))}), Progress::done) << "it had come before";
    EXPECT_EQ(first, content);
  });
}

TEST(TcpLink, a_peer_that_dies_fails_what_waits_for_it_in_both_directions) {
  run_ranks({1, 1, 1}, [](RankThread& thread) {
    Connected rank(thread);
    std::vector<std::byte> byte(1), big(64 << 20);
    const int me = thread.rank().value;
    std::vector<Pending> all;
    for (int other = 0; other < 3; ++other) {
      if (other == me) continue;
      all.push_back(rank.link->send(Seat{other}, byte, channel(1)));
      all.push_back(rank.link->recv(Seat{other}, byte, channel(1)));
    }
    ASSERT_EQ(drive(rank, all), Progress::done);
    if (me == 1) {
      // Waits until the other ranks are under way.
      ASSERT_EQ(drive(rank, {rank.link->recv(Seat{0}, byte, channel(2)), rank.link->recv(Seat{2}, byte, channel(2))}),
                Progress::done);
      thread.die();
      return;
    }
    Pending begun = rank.link->send(Seat{1}, byte, channel(2));
    Pending waits = me == 0 ? rank.link->recv(Seat{1}, byte, channel(3)) : rank.link->send(Seat{1}, big, channel(3));
    ASSERT_EQ(drive(rank, {begun}), Progress::done);
    ASSERT_EQ(drive(rank, {waits}), Progress::failed);
    EXPECT_EQ(rank.link->failure().code, ErrorCode::peer_lost);
    EXPECT_NE(rank.link->failure().message.find("rank 1 (host n1, process 1001)"), std::string::npos)
        << rank.link->failure().message;
    // The other two ranks still have a link to each other.
    int other = 2 - me;
    ASSERT_EQ(
        drive(rank, {rank.link->send(Seat{other}, byte, channel(4)), rank.link->recv(Seat{other}, byte, channel(4))}),
        Progress::done);
  });
}

TEST(TcpLink, a_peer_that_gives_up_tells_why) {
  run_ranks({1, 1}, [](RankThread& thread) {
    Connected rank(thread);
    std::vector<std::byte> byte(1);
    ASSERT_EQ(drive(rank, {rank.link->send(Seat{1 - thread.rank().value}, byte, channel(1)),
                           rank.link->recv(Seat{1 - thread.rank().value}, byte, channel(1))}),
              Progress::done);
    if (thread.rank() == Rank{1}) {
      rank.link->abort(Error(ErrorCode::peer_lost, "rank 5 (host n7, process 9) has ended"));
      return;
    }
    ASSERT_EQ(drive(rank, {rank.link->recv(Seat{1}, byte, channel(2))}), Progress::failed);
    EXPECT_NE(rank.link->failure().message.find(
                  "rank 1 (host n1, process 1001) has given up: rank 5 (host n7, process 9) has ended"),
              std::string::npos)
        << rank.link->failure().message;
  });
}

TEST(TcpLink, after_abort_everything_has_failed_and_the_memory_is_left_alone) {
  std::latch has_aborted(1);
  run_ranks({1, 1}, [&](RankThread& thread) {
    Connected rank(thread);
    auto content = std::make_unique<std::vector<std::byte>>(64 << 20, std::byte{1});
    std::vector<std::byte> byte(1);
    Seat peer{1 - thread.rank().value};
    ASSERT_EQ(drive(rank, {rank.link->send(peer, byte, channel(0)), rank.link->recv(peer, byte, channel(0))}),
              Progress::done);
    if (thread.rank() == Rank{0}) {
      Pending send = rank.link->send(peer, *content, channel(1));
      Pending recv = rank.link->recv(peer, byte, channel(9));
      ASSERT_EQ(rank.link->poll(send), Progress::pending);
      rank.link->abort(Error(ErrorCode::timeout, "the test gave up"));
      content.reset();  // an address sanitizer would notice a read after this
      EXPECT_EQ(rank.link->poll(send), Progress::failed);
      EXPECT_EQ(rank.link->poll(recv), Progress::failed);
      EXPECT_EQ(rank.link->failure().message, "the test gave up");
      EXPECT_EQ(rank.link->poll(rank.link->recv(peer, byte, channel(3))), Progress::failed);
      EXPECT_EQ(rank.link->poll(rank.link->send(Seat{0}, byte, channel(3))), Progress::failed);
      has_aborted.count_down();
    } else {
      has_aborted.wait();
      ASSERT_EQ(drive(rank, {rank.link->recv(peer, *content, channel(1))}), Progress::failed);
      EXPECT_EQ(rank.link->failure().code, ErrorCode::peer_lost);
    }
  });
}

TEST(TcpLink, a_peer_that_was_never_there_is_unreachable_by_name_and_address) {
  Ensemble ensemble(made_up_world({1, 1}));
  RankThread zero(ensemble, Rank{0}), one(ensemble, Rank{1});
  Connected rank(one);
  ensemble.take_listener(Rank{0});  // the listener is closed at once
  std::vector<std::byte> byte(1);
  ASSERT_EQ(drive(rank, {rank.link->send(Seat{0}, byte, channel(1))}), Progress::failed);
  const std::string& text = rank.link->failure().message;
  EXPECT_NE(text.find("rank 0 (host n0, process 1000) cannot be reached over TCP: 127.0.0.1:"), std::string::npos)
      << text;
  EXPECT_NE(text.find("Connection refused"), std::string::npos) << text;
}

TEST(TcpLink, allocates_nothing_for_messages_that_are_expected_in_time) {
  // The tables grow only in the first turns, because they keep their capacities.
  Ensemble ensemble(made_up_world({1, 1}));
  RankThread zero(ensemble, Rank{0}), one(ensemble, Rank{1});
  zero.use_net();
  Connected a(zero), b(one);
  std::vector<std::byte> out(100), in(100);
  std::uint32_t highest = 0;
  for (std::uint64_t turn = 0; turn < 100; ++turn) {
    Pending recv = b.link->recv(Seat{0}, in, channel(turn)), send = a.link->send(Seat{1}, out, channel(turn));
    highest = std::max({highest, recv.ticket, send.ticket});
    auto until = Deadline::after(std::chrono::seconds(60));
    Progress sent = Progress::pending, received = Progress::pending;
    while (!until.passed() && (sent == Progress::pending || received == Progress::pending)) {
      if (sent == Progress::pending) sent = a.link->poll(send);
      if (received == Progress::pending) received = b.link->poll(recv);
    }
    ASSERT_EQ(sent, Progress::done);
    ASSERT_EQ(received, Progress::done);
  }
  EXPECT_EQ(highest, 1u) << "tickets are used again";
}

TEST(TcpLink, a_sleeping_engine_is_woken_by_every_kind_of_news) {
  run_ranks({1, 1}, [&](RankThread& thread) {
    Connected rank(thread);
    const Seat peer{1 - thread.rank().value};
    std::vector<std::uint32_t> value{0};
    for (std::uint64_t turn = 0; turn < 500; ++turn) {
      thread.note("turn " + std::to_string(turn));
      bool sends = (turn + static_cast<std::uint64_t>(thread.rank().value)) % 2 == 0;
      if (sends) ++value[0];
      std::span<std::uint32_t> bytes(value);
      ASSERT_EQ(drive(rank, {sends ? rank.link->send(peer, std::as_bytes(bytes), channel(turn))
                                   : rank.link->recv(peer, std::as_writable_bytes(bytes), channel(turn))}),
                Progress::done);
      ASSERT_EQ(value[0], turn + 1);
    }
  });
}

}  // namespace
}  // namespace hvd::transport::tcp_link_test
