#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "shm_ranks.hpp"

namespace hvd::transport {
namespace {

using testing::connect_all;
using testing::RankThread;
using testing::run_ranks;
using testing::shm_for;

Channel channel(std::uint64_t batch, std::uint32_t chunk = 0) {
  return {Sequence{batch}, 1, chunk};
}

std::vector<std::byte> message(int from, int to, std::uint64_t salt, std::size_t bytes) {
  std::vector<std::byte> content(bytes);
  std::mt19937_64 random(salt * 64 + static_cast<std::uint64_t>(from * 8 + to));
  for (std::byte& byte : content) byte = static_cast<std::byte>(random());
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

TEST(ShmMessages, of_any_size_reach_everybody_also_from_oneself) {
  for (int size : {1, 2, 3, 5}) {
    run_ranks({size}, [size](RankThread& rank) {
      auto transport = shm_for(rank.surroundings);
      auto link = connect_all(*transport, rank);
      int me = rank.rank().value;
      std::uint64_t batch = 0;
      for (std::size_t bytes : {0, 1, 1000, 65'536, 300'001}) {
        rank.note("messages of " + std::to_string(bytes));
        std::vector<std::vector<std::byte>> sent,
            received(static_cast<std::size_t>(size), std::vector<std::byte>(bytes));
        for (int to = 0; to < size; ++to) sent.push_back(message(me, to, batch, bytes));
        Pendings pendings{*link, {}};
        for (int other = 0; other < size; ++other) {
          auto index = static_cast<std::size_t>(other);
          pendings.list.push_back(link->send(Seat{other}, sent[index], channel(batch)));
          pendings.list.push_back(link->recv(Seat{other}, received[index], channel(batch)));
        }
        ASSERT_EQ(testing::drive(pendings, rank.wake), Progress::done);
        for (int from = 0; from < size; ++from) {
          ASSERT_EQ(received[static_cast<std::size_t>(from)], message(from, me, batch, bytes));
        }
        ++batch;
      }
    });
  }
}

TEST(ShmMessages, match_by_channel_in_whatever_order_they_are_expected) {
  run_ranks({2}, [](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    constexpr std::uint32_t count = 40;
    std::vector<std::vector<std::byte>> contents(count);
    Pendings pendings{*link, {}};
    auto bytes_of = [](std::uint32_t i) { return i * i * 100; };  // up to 152 100: more than the size of a ring
    if (rank.rank() == Rank{0}) {
      for (std::uint32_t i = 0; i < count; ++i) {
        contents[i] = message(0, 1, i, bytes_of(i));
        pendings.list.push_back(link->send(Seat{1}, contents[i], channel(7, i)));
      }
    } else {
      for (std::uint32_t i = count; i-- > 0;) {
        contents[i].resize(bytes_of(i));
        pendings.list.push_back(link->recv(Seat{0}, contents[i], channel(7, i)));
        if (i % 3 != 0) continue;
        ASSERT_EQ(testing::drive(pendings, rank.wake), Progress::done);  // earlier messages are kept in private memory
      }
      ASSERT_EQ(testing::drive(pendings, rank.wake), Progress::done);
      for (std::uint32_t i = 0; i < count; ++i) EXPECT_EQ(contents[i], message(0, 1, i, bytes_of(i)));
    }
    ASSERT_EQ(testing::drive(pendings, rank.wake), Progress::done);
  });
}

TEST(ShmMessages, of_equal_channel_arrive_in_the_order_sent) {
  run_ranks({2}, [](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    std::vector<std::uint32_t> numbers(500);
    std::uint32_t other = 0;
    Pendings pendings{*link, {}};
    for (std::uint32_t i = 0; i < numbers.size(); ++i) {
      std::span<std::uint32_t> one(&numbers[i], 1);
      if (rank.rank() == Rank{0}) {
        numbers[i] = i;
        pendings.list.push_back(link->send(Seat{1}, std::as_bytes(one), channel(1)));
      } else {
        pendings.list.push_back(link->recv(Seat{0}, std::as_writable_bytes(one), channel(1)));
      }
    }
    std::span<std::uint32_t> last(&other, 1);
    if (rank.rank() == Rank{0}) pendings.list.push_back(link->send(Seat{1}, std::as_bytes(last), channel(2)));
    else pendings.list.insert(pendings.list.begin(), link->recv(Seat{0}, std::as_writable_bytes(last), channel(2)));
    ASSERT_EQ(testing::drive(pendings, rank.wake), Progress::done);
    for (std::uint32_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i);
  });
}

TEST(ShmMessages, of_another_length_than_expected_fail_only_their_receive) {
  run_ranks({2}, [](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    std::vector<std::byte> wrong(100'000), right(10);
    if (rank.rank() == Rank{0}) {
      Pendings sends{*link, {link->send(Seat{1}, wrong, channel(1)), link->send(Seat{1}, right, channel(2))}};
      ASSERT_EQ(testing::drive(sends, rank.wake), Progress::done);
    } else {
      std::vector<std::byte> expected(50'000);
      Pendings first{*link, {link->recv(Seat{0}, expected, channel(1))}};
      Pendings second{*link, {link->recv(Seat{0}, right, channel(2))}};
      ASSERT_EQ(testing::drive(first, rank.wake), Progress::failed);
      EXPECT_EQ(link->failure().code, ErrorCode::mismatch);
      EXPECT_NE(link->failure().message.find("100000"), std::string::npos);
      ASSERT_EQ(testing::drive(second, rank.wake), Progress::done);
    }
  });
}

TEST(ShmMessages, fail_on_abort_and_leave_the_memory_alone) {
  run_ranks({2}, [](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    std::vector<std::byte> content(500'000, std::byte{1}), never(10);
    Pending pending =
        rank.rank() == Rank{0} ? link->send(Seat{1}, content, channel(1)) : link->recv(Seat{0}, content, channel(9));
    ASSERT_EQ(link->poll(pending), Progress::pending);
    link->abort(Error(ErrorCode::peer_lost, "rank 5 ended"));
    ASSERT_EQ(link->poll(pending), Progress::failed);
    EXPECT_EQ(link->failure().message, "rank 5 ended");
    Pending late = link->recv(Seat{1}, never, channel(3));
    EXPECT_EQ(link->poll(late), Progress::failed);
  });
}

}  // namespace
}  // namespace hvd::transport
