#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ranks_as_threads.hpp"
#include "transport/registry.hpp"

namespace hvd::transport {
namespace {

using testing::Ensemble;
using testing::made_up_world;
using testing::RankThread;
using testing::run_ranks;

std::unique_ptr<Transport> inproc_for(const Surroundings& surroundings) {
  for (const Maker& maker : registry())
    if (std::string_view(maker.name) == "inproc") return maker.make(surroundings);
  ADD_FAILURE() << "inproc is not in the registry";
  return nullptr;
}

// A rank with a link to all other ranks, on the test's own thread: the tests step several ranks in turn.
struct Connected {
  Connected(Ensemble& ensemble, int rank) : thread(ensemble, Rank{rank}), transport(inproc_for(thread.surroundings)) {
    auto connecting = transport->connect(testing::everybody(thread.world), "world", thread.exchange);
    EXPECT_TRUE(connecting);
    EXPECT_EQ((*connecting)->step(), Progress::done);
    link = (*connecting)->take();
  }
  RankThread thread;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Link> link;
};

ConstBytes bytes_of(const std::vector<int>& values) {
  return std::as_bytes(std::span(values));
}
Bytes bytes_of(std::vector<int>& values) {
  return std::as_writable_bytes(std::span(values));
}

TEST(Inproc, reaches_only_ranks_that_are_threads_of_this_process) {
  World world = made_up_world({2});
  Config config;
  posix::WaitWord wake;
  Surroundings alone;
  alone.world = &world;
  alone.config = &config;
  alone.wake = &wake;
  EXPECT_FALSE(inproc_for(alone)->reaches(testing::everybody(world), DeviceKind::host));
  Surroundings with_threads = alone;
  with_threads.offer(std::make_shared<connections::ThreadHub>(2));
  auto transport = inproc_for(with_threads);
  EXPECT_TRUE(transport->reaches(testing::everybody(world), DeviceKind::host));
  EXPECT_FALSE(transport->reaches(testing::everybody(world), DeviceKind::cuda));
  EXPECT_FALSE(transport->reaches(Group{{Rank{0}, Rank{2}}, Seat{0}}, DeviceKind::host));
}

TEST(Inproc, refuses_to_connect_a_group_without_me) {
  Ensemble ensemble(made_up_world({3}));
  Connected rank(ensemble, 0);
  auto refused = rank.transport->connect(Group{{Rank{1}, Rank{2}}, Seat{-1}}, "others", rank.thread.exchange);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
}

TEST(Inproc, a_send_is_done_only_after_its_receiver_took_it) {
  Ensemble ensemble(made_up_world({2}));
  Connected a(ensemble, 0), b(ensemble, 1);
  std::vector<int> sent{1, 2, 3}, received(3);
  Pending send = a.link->send(Seat{1}, bytes_of(std::as_const(sent)), Channel{Sequence{7}, 1, 2});
  EXPECT_EQ(a.link->poll(send), Progress::pending);
  Pending recv = b.link->recv(Seat{0}, bytes_of(received), Channel{Sequence{7}, 1, 2});
  EXPECT_EQ(b.link->poll(recv), Progress::done);
  EXPECT_EQ(a.link->poll(send), Progress::done);
  EXPECT_EQ(received, sent);
}

TEST(Inproc, matches_messages_by_channel_and_keeps_the_order_within_one) {
  Ensemble ensemble(made_up_world({2}));
  Connected a(ensemble, 0), b(ensemble, 1);
  std::vector<int> first{1}, second{2}, other{3}, got(1);
  Channel channel{Sequence{1}, 0, 0}, other_channel{Sequence{1}, 0, 1};
  (void)a.link->send(Seat{1}, bytes_of(std::as_const(first)), channel);
  (void)a.link->send(Seat{1}, bytes_of(std::as_const(second)), channel);
  (void)a.link->send(Seat{1}, bytes_of(std::as_const(other)), other_channel);
  for (auto [from, expected] : {std::pair{other_channel, 3}, {channel, 1}, {channel, 2}}) {
    Pending recv = b.link->recv(Seat{0}, bytes_of(got), from);
    ASSERT_EQ(b.link->poll(recv), Progress::done);
    EXPECT_EQ(got[0], expected);
  }
}

TEST(Inproc, links_of_different_names_do_not_hear_each_other) {
  Ensemble ensemble(made_up_world({2}));
  Connected a(ensemble, 0), b(ensemble, 1);
  auto other = b.transport->connect(testing::everybody(b.thread.world), "other", b.thread.exchange);
  ASSERT_TRUE(other);
  auto other_link = (*other)->take();
  std::vector<int> sent{1}, got(1);
  (void)a.link->send(Seat{1}, bytes_of(std::as_const(sent)), Channel{});
  Pending recv = other_link->recv(Seat{0}, bytes_of(got), Channel{});
  EXPECT_EQ(other_link->poll(recv), Progress::pending);
}

TEST(Inproc, messages_without_bytes_are_messages) {
  Ensemble ensemble(made_up_world({2}));
  Connected a(ensemble, 0), b(ensemble, 1);
  Pending recv = b.link->recv(Seat{0}, {}, Channel{});
  EXPECT_EQ(b.link->poll(recv), Progress::pending);
  Pending send = a.link->send(Seat{1}, {}, Channel{});
  EXPECT_EQ(b.link->poll(recv), Progress::done);
  EXPECT_EQ(a.link->poll(send), Progress::done);
}

TEST(Inproc, a_message_of_another_size_than_expected_is_an_error_that_names_both) {
  Ensemble ensemble(made_up_world({2}));
  Connected a(ensemble, 0), b(ensemble, 1);
  std::vector<int> sent(3), got(2);
  (void)a.link->send(Seat{1}, bytes_of(std::as_const(sent)), Channel{});
  Pending recv = b.link->recv(Seat{0}, bytes_of(got), Channel{});
  ASSERT_EQ(b.link->poll(recv), Progress::failed);
  EXPECT_EQ(b.link->failure().code, ErrorCode::mismatch);
  EXPECT_NE(b.link->failure().message.find("expected a message of 8 bytes"), std::string::npos);
  EXPECT_NE(b.link->failure().message.find("rank 0 (host n0"), std::string::npos);
  EXPECT_NE(b.link->failure().message.find("12"), std::string::npos);
}

TEST(Inproc, a_delayed_message_arrives_after_so_many_polls) {
  Ensemble ensemble(made_up_world({2}));
  Connected a(ensemble, 0), b(ensemble, 1);
  ensemble.hub->delay(Rank{0}, Rank{1}, 3);
  std::vector<int> sent{5}, got(1);
  (void)a.link->send(Seat{1}, bytes_of(std::as_const(sent)), Channel{});
  Pending recv = b.link->recv(Seat{0}, bytes_of(got), Channel{});
  for (int poll = 0; poll < 3; ++poll) EXPECT_EQ(b.link->poll(recv), Progress::pending);
  EXPECT_EQ(b.link->poll(recv), Progress::done);
  EXPECT_EQ(got[0], 5);
}

TEST(Inproc, a_dropped_message_never_arrives_and_its_sender_does_not_know) {
  Ensemble ensemble(made_up_world({2}));
  Connected a(ensemble, 0), b(ensemble, 1);
  ensemble.hub->drop_next(Rank{0}, Rank{1}, 1);
  std::vector<int> lost{1}, kept{2}, got(1);
  Pending send = a.link->send(Seat{1}, bytes_of(std::as_const(lost)), Channel{});
  EXPECT_EQ(a.link->poll(send), Progress::done);
  Pending recv = b.link->recv(Seat{0}, bytes_of(got), Channel{});
  for (int poll = 0; poll < 100; ++poll) ASSERT_EQ(b.link->poll(recv), Progress::pending);
  (void)a.link->send(Seat{1}, bytes_of(std::as_const(kept)), Channel{});
  EXPECT_EQ(b.link->poll(recv), Progress::done);
  EXPECT_EQ(got[0], 2);
}

TEST(Inproc, a_death_fails_what_the_others_wait_for_and_names_the_dead) {
  Ensemble ensemble(made_up_world({2, 1}));
  Connected a(ensemble, 0), b(ensemble, 1), c(ensemble, 2);
  std::vector<int> got(1);
  Pending from_dead = a.link->recv(Seat{2}, bytes_of(got), Channel{});
  Pending from_living = b.link->recv(Seat{0}, bytes_of(got), Channel{});
  EXPECT_EQ(a.link->poll(from_dead), Progress::pending);
  ensemble.hub->kill(Rank{2});
  ASSERT_EQ(a.link->poll(from_dead), Progress::failed);
  EXPECT_EQ(a.link->failure().code, ErrorCode::peer_lost);
  EXPECT_NE(a.link->failure().message.find("rank 2 (host n1, process 1002)"), std::string::npos);
  // This rank waits for a living rank, but is told of the loss, too: the living rank will not send either.
  ASSERT_EQ(b.link->poll(from_living), Progress::failed);
  EXPECT_NE(b.link->failure().message.find("rank 2 (host n1"), std::string::npos);
}

TEST(Inproc, after_abort_everything_pending_has_failed_and_no_peer_reads_my_bytes) {
  Ensemble ensemble(made_up_world({2}));
  Connected a(ensemble, 0), b(ensemble, 1);
  auto sent = std::make_unique<std::vector<int>>(1000, 1);
  std::vector<int> got(1000);
  Pending send = a.link->send(Seat{1}, bytes_of(std::as_const(*sent)), Channel{});
  a.link->abort(Error(ErrorCode::timeout, "the test gave up"));
  sent.reset();  // an address sanitizer would notice a read after this
  EXPECT_EQ(a.link->poll(send), Progress::failed);
  EXPECT_EQ(a.link->failure().message, "the test gave up");
  EXPECT_EQ(a.link->poll(a.link->recv(Seat{1}, {}, Channel{})), Progress::failed);
  Pending recv = b.link->recv(Seat{0}, bytes_of(got), Channel{});
  ASSERT_EQ(b.link->poll(recv), Progress::failed);
  EXPECT_EQ(b.link->failure().code, ErrorCode::peer_lost);
  EXPECT_NE(b.link->failure().message.find("rank 0 (host n0"), std::string::npos);
}

TEST(Inproc, what_was_sent_before_a_link_closed_still_arrives) {
  Ensemble ensemble(made_up_world({2}));
  auto a = std::make_unique<Connected>(ensemble, 0);
  Connected b(ensemble, 1);
  std::vector<int> got(1), sent{4};
  Pending send = b.link->send(Seat{0}, bytes_of(std::as_const(sent)), Channel{});
  ASSERT_EQ(a->link->poll(a->link->recv(Seat{1}, bytes_of(got), Channel{})), Progress::done);
  a.reset();
  EXPECT_EQ(b.link->poll(send), Progress::done);
}

TEST(Inproc, a_sleeping_engine_is_woken_by_every_kind_of_news) {
  Ensemble ensemble(made_up_world({2}));
  ensemble.hub->delay_randomly(42, 5);
  run_ranks(ensemble, [&](RankThread& rank) {
    auto transport = inproc_for(rank.surroundings);
    auto connecting = transport->connect(testing::everybody(rank.world), "world", rank.exchange);
    auto link = (*connecting)->take();
    struct Once {
      Link& link;
      Pending pending;
      Progress step() { return link.poll(pending); }
    };
    const Seat peer{1 - rank.rank().value};
    std::vector<int> value{0};
    for (std::uint64_t turn = 0; turn < 500; ++turn) {
      rank.note("turn " + std::to_string(turn));
      bool sends = (turn + static_cast<std::uint64_t>(rank.rank().value)) % 2 == 0;
      Channel channel{Sequence{turn}, 0, 0};
      if (sends) ++value[0];
      Once once{*link, sends ? link->send(peer, bytes_of(std::as_const(value)), channel)
                             : link->recv(peer, bytes_of(value), channel)};
      ASSERT_EQ(testing::drive(once, rank.wake), Progress::done);
      ASSERT_EQ(value[0], static_cast<int>(turn) + 1);
    }
  });
}

TEST(ThreadHub, shares_zeroed_memory_by_name_while_someone_holds_it) {
  connections::ThreadHub hub(2);
  auto first = *hub.share_memory("slab", 10000);
  auto* data = static_cast<unsigned char*>(first.get());
  EXPECT_EQ(data[9999], 0);
  data[9999] = 7;
  auto second = *hub.share_memory("slab", 10000);
  EXPECT_EQ(second.get(), first.get());
  EXPECT_NE(hub.share_memory("other", 10000)->get(), first.get());
  first.reset();
  second.reset();
  EXPECT_EQ(static_cast<unsigned char*>(hub.share_memory("slab", 10000)->get())[9999], 0);
}

}  // namespace
}  // namespace hvd::transport
