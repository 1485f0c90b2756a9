#include "connections/tcp/handshake.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "bootstrap/meeting/meeting.hpp"
#include "made_up_world.hpp"

namespace hvd::connections::tcp {
namespace {

using State = Handshake::State;

World world_of(int rank, std::string secret = "the job's secret", std::uint32_t epoch = 3, std::string job = "job 7") {
  World world = testing::made_up_world({1, 1, 1});
  world.rank = Rank{rank};
  world.secret = std::move(secret);
  world.epoch = epoch;
  world.job = std::move(job);
  return world;
}

const Digest name = sha256(as_bytes("control"));

// Carries messages between the two sides until neither has anything to send. `tamper` gets each message and its number
// first.
template <typename Tamper>
void run(Handshake& dialer, Handshake& acceptor, Tamper tamper) {
  int number = 1;
  for (bool moved = true; moved;) {
    moved = false;
    if (dialer.state() == State::introducing) dialer.introduce(name);
    for (auto [from, to] : {std::pair{&dialer, &acceptor}, {&acceptor, &dialer}}) {
      Buffer message = from->take_output();
      if (message.empty()) continue;
      tamper(number++, message);
      if (to->wanted() == 0) return;
      ASSERT_EQ(to->wanted(), message.size());
      to->receive(message);
      moved = true;
    }
  }
}
void run(Handshake& dialer, Handshake& acceptor) {
  run(dialer, acceptor, [](int, Buffer&) {});
}

TEST(Handshake, between_ranks_of_one_job_tells_the_acceptor_who_and_what_for) {
  Credentials two(world_of(2)), zero(world_of(0));
  auto dialer = Handshake::dial(two, Rank{0}), acceptor = Handshake::accept(zero);
  run(dialer, acceptor);
  ASSERT_EQ(dialer.state(), State::done) << dialer.why();
  ASSERT_EQ(acceptor.state(), State::done) << acceptor.why();
  EXPECT_EQ(acceptor.peer(), Rank{2});
  EXPECT_EQ(acceptor.name(), name);
  EXPECT_EQ(dialer.wanted(), 0u);
  EXPECT_EQ(acceptor.wanted(), 0u);
}

TEST(Handshake, with_another_secret_epoch_or_job_ends_before_the_dialer_introduces_itself) {
  Credentials two(world_of(2));
  for (const World& other : {world_of(0, "another secret"), world_of(0, ""), world_of(0, "the job's secret", 4),
                             world_of(0, "the job's secret", 3, "job 8")}) {
    Credentials zero(other);
    auto dialer = Handshake::dial(two, Rank{0}), acceptor = Handshake::accept(zero);
    run(dialer, acceptor);
    EXPECT_EQ(dialer.state(), State::refused);
    EXPECT_NE(dialer.why().find("another job or another start of this job"), std::string::npos) << dialer.why();
    EXPECT_EQ(acceptor.state(), State::greeting) << "waits for the introduction";
  }
}

TEST(Handshake, with_another_rank_than_the_one_dialled_is_refused) {
  Credentials two(world_of(2)), one(world_of(1));
  auto dialer = Handshake::dial(two, Rank{0}), acceptor = Handshake::accept(one);
  run(dialer, acceptor);
  EXPECT_EQ(dialer.state(), State::refused);
  EXPECT_NE(dialer.why().find("another rank"), std::string::npos) << dialer.why();
}

TEST(Handshake, refuses_every_message_with_one_bit_changed) {
  Credentials two(world_of(2)), zero(world_of(0));
  for (int changed = 1; changed <= 4; ++changed)
    for (std::size_t byte = 0;; ++byte) {
      auto dialer = Handshake::dial(two, Rank{0}), acceptor = Handshake::accept(zero);
      bool is_past_the_end = false;
      // Padding bytes, which nobody reads.
      bool is_unused = (changed == 1 || changed == 2) && byte >= 12 && byte < 16;
      is_unused |= changed == 2 && (byte >= 48 && byte < 56);
      is_unused |= changed == 3 && byte >= 4 && byte < 8;
      run(dialer, acceptor, [&](int number, Buffer& message) {
        if (number != changed) return;
        if (byte < message.size()) message[byte] ^= std::byte{0x10};
        else is_past_the_end = true;
      });
      if (is_past_the_end) break;
      if (is_unused) continue;
      EXPECT_FALSE(dialer.state() == State::done) << "message " << changed << ", byte " << byte;
    }
}

TEST(Handshake, replayed_to_a_second_acceptor_is_refused) {
  Credentials two(world_of(2)), zero(world_of(0));
  auto dialer = Handshake::dial(two, Rank{0}), acceptor = Handshake::accept(zero), other = Handshake::accept(zero);
  std::vector<Buffer> heard;
  run(dialer, acceptor, [&](int number, Buffer& message) {
    if (number % 2 == 1) heard.push_back(message);
  });
  ASSERT_EQ(heard.size(), 2u);
  for (const Buffer& message : heard) other.receive(message);
  EXPECT_EQ(other.state(), State::refused);
  EXPECT_NE(other.why().find("could not prove"), std::string::npos) << other.why();
}

TEST(Handshake, a_rank_that_the_job_does_not_have_is_refused_although_it_knows_the_secret) {
  World larger = world_of(0);
  larger.members.resize(9);
  larger.rank = Rank{8};
  Credentials eight(larger), zero(world_of(0));
  auto dialer = Handshake::dial(eight, Rank{0}), acceptor = Handshake::accept(zero);
  run(dialer, acceptor);
  EXPECT_EQ(acceptor.state(), State::refused);
}

TEST(Handshake, tells_both_ends_that_their_versions_differ) {
  Credentials two(world_of(2)), zero(world_of(0));
  auto dialer = Handshake::dial(two, Rank{0}), acceptor = Handshake::accept(zero);
  run(dialer, acceptor, [&](int number, Buffer& message) {
    std::uint32_t version = bootstrap::protocol_version + 1;
    if (number == 1) std::memcpy(message.data() + 8, &version, sizeof version);
  });
  EXPECT_EQ(acceptor.state(), State::refused);
  EXPECT_NE(acceptor.why().find("version " + std::to_string(bootstrap::protocol_version + 1)), std::string::npos);
  auto newer = Handshake::accept(zero);
  auto older = Handshake::dial(two, Rank{0});
  run(older, newer, [&](int number, Buffer& message) {
    std::uint32_t version = bootstrap::protocol_version + 1;
    if (number == 2) std::memcpy(message.data() + 8, &version, sizeof version);
  });
  EXPECT_EQ(older.state(), State::refused);
  EXPECT_NE(older.why().find("all ranks must load the same release"), std::string::npos) << older.why();
}

TEST(Handshake, drops_garbage_at_the_first_message) {
  Credentials zero(world_of(0));
  for (const char* garbage : {"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n",
                              "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n0123456789"}) {
    auto acceptor = Handshake::accept(zero);
    acceptor.receive(as_bytes(std::string_view(garbage).substr(0, acceptor.wanted())));
    EXPECT_EQ(acceptor.state(), State::refused);
    EXPECT_TRUE(acceptor.take_output().empty()) << "strangers are not answered";
    EXPECT_EQ(acceptor.wanted(), 0u);
  }
}

}  // namespace
}  // namespace hvd::connections::tcp
