// The board on which a node agrees: arrivals, requests and the log. Most tests run all seats on one thread.
#include "control/node_board.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sanitized.hpp"

namespace hvd::control {
namespace {

std::shared_ptr<void> zeroed_memory(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  std::size_t rounded = (bytes + page - 1) / page * page;
  void* memory = std::aligned_alloc(page, rounded);
  std::memset(memory, 0, rounded);
  return {memory, [](void* pointer) { std::free(pointer); }};
}

// One board and the views of all its seats.
class Boards {
 public:
  explicit Boards(int seats, int slots = 16)
      : shape_{seats, slots}, memory_(zeroed_memory(NodeBoard::bytes_needed(shape_))) {
    for (int seat = 0; seat < seats; ++seat) boards_.emplace_back(memory_, shape_, Seat{seat});
  }
  NodeBoard& seat(int index) { return boards_[static_cast<std::size_t>(index)]; }
  NodeBoard& leader() { return boards_[0]; }
  int seats() const { return shape_.seats; }
  // A second leader's view, which has seen nothing yet.
  NodeBoard another_leader() { return {memory_, shape_, NodeBoard::leader}; }

  void arrive(int index, std::initializer_list<int> slots) {
    for (int slot : slots) seat(index).arrive(SlotId{slot});
    seat(index).announce_arrivals();
  }
  std::vector<int> take_all_completed() {
    std::vector<int> slots;
    for (SlotId slot; leader().take_completed(slot);) slots.push_back(slot.value);
    return slots;
  }
  std::vector<int> missing_at(int slot) {
    std::vector<int> seats;
    for (Seat seat : leader().missing_at(SlotId{slot})) seats.push_back(seat.value);
    return seats;
  }

 private:
  NodeBoard::Shape shape_;
  std::shared_ptr<void> memory_;
  std::deque<NodeBoard> boards_;
};

// Tells whether post() has been called on the word since this object announced a sleep.
class Posts {
 public:
  explicit Posts(posix::WaitWord& word) : word_(word), at_(word.announce()) {}
  ~Posts() { word_.retract(); }
  Posts(const Posts&) = delete;
  Posts& operator=(const Posts&) = delete;
  bool was_posted() {
    std::uint32_t now = word_.announce();
    word_.retract();
    return std::exchange(at_, now) != now;
  }

 private:
  posix::WaitWord& word_;
  std::uint32_t at_;
};

using Slots = std::vector<int>;
using Seats = std::vector<int>;

class Arrivals : public ::testing::TestWithParam<int> {
 protected:
  // All seats of a small board; of a large board only those at the borders of 64-bit words.
  Seats last_arrivers() const {
    int seats = GetParam();
    Seats all(static_cast<std::size_t>(seats));
    std::iota(all.begin(), all.end(), 0);
    if (seats > 4)
      std::erase_if(all, [seats](int seat) { return seat > 1 && seat % 64 > 1 && seat % 64 < 63 && seat < seats - 1; });
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(of_seats, Arrivals, ::testing::Values(1, 3, 64, 65, 130), ::testing::PrintToStringParamName());

TEST_P(Arrivals, complete_a_slot_with_the_last_one_whoever_that_is_and_again_and_again) {
  Boards boards(GetParam(), 70);
  std::mt19937 random(5);
  for (int last : last_arrivers())
    for (int slot : {0, 63, 64}) {  // an earlier `last` has already completed the slot
      Seats order;
      for (int seat = 0; seat < boards.seats(); ++seat)
        if (seat != last) order.push_back(seat);
      std::shuffle(order.begin(), order.end(), random);
      Seats missing(order);
      missing.push_back(last);
      for (int seat : order) {
        std::sort(missing.begin(), missing.end());
        ASSERT_EQ(boards.missing_at(slot), missing);
        boards.arrive(seat, {slot});
        ASSERT_EQ(boards.take_all_completed(), Slots{}) << "before seat " << last << " had arrived";
        std::erase(missing, seat);
      }
      ASSERT_EQ(boards.missing_at(slot), Seats{last});
      Posts leader(boards.leader().wake_word(NodeBoard::leader));
      boards.arrive(last, {slot});
      EXPECT_EQ(leader.was_posted(), last != 0);
      EXPECT_EQ(boards.missing_at(slot), Seats{});
      ASSERT_EQ(boards.take_all_completed(), Slots{slot});
      EXPECT_EQ(boards.missing_at(slot), Seats{});
      boards.leader().scheduled(SlotId{slot});
      EXPECT_EQ(boards.missing_at(slot).size(), static_cast<std::size_t>(boards.seats()));
    }
}

TEST_P(Arrivals, at_many_slots_at_once_complete_each_of_them_once) {
  constexpr int slots = 300;
  Boards boards(GetParam(), slots);
  std::mt19937 random(7);
  for (int round = 0; round < 3; ++round) {
    Slots wanted;
    for (int slot = 0; slot < slots; ++slot)
      if (random() % 3 != 0) wanted.push_back(slot);
    for (int seat = 0; seat < boards.seats(); ++seat) {
      ASSERT_EQ(boards.take_all_completed(), Slots{});
      std::shuffle(wanted.begin(), wanted.end(), random);
      for (int slot : wanted) boards.seat(seat).arrive(SlotId{slot});
      boards.seat(seat).announce_arrivals();
    }
    Slots completed = boards.take_all_completed();
    std::sort(completed.begin(), completed.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(completed, wanted);
  }
}

TEST_P(Arrivals, are_seen_only_once_they_are_announced_and_disturb_nobody_before_the_last) {
  Boards boards(GetParam());
  int last = boards.seats() - 1;
  for (int seat = 0; seat < boards.seats(); ++seat) boards.seat(seat).arrive(SlotId{3});
  EXPECT_EQ(boards.missing_at(3).size(), static_cast<std::size_t>(boards.seats()));
  Posts leader(boards.leader().wake_word(NodeBoard::leader));
  for (int seat = 0; seat < last; ++seat) {
    boards.seat(seat).announce_arrivals();
    boards.seat(seat).announce_arrivals();
    ASSERT_FALSE(leader.was_posted()) << "by seat " << seat;
  }
  EXPECT_EQ(boards.missing_at(3), Seats{last});
  EXPECT_EQ(boards.take_all_completed(), Slots{});
  boards.seat(last).announce_arrivals();
  EXPECT_EQ(boards.take_all_completed(), Slots{3});
}

TEST(NodeBoard, takes_an_arrival_back_that_not_all_have_joined) {
  Boards boards(3);
  boards.arrive(0, {5});
  boards.arrive(2, {5});
  boards.seat(2).close(SlotId{5});
  EXPECT_EQ(boards.missing_at(5), (Seats{1, 2}));
  boards.arrive(1, {5});
  EXPECT_EQ(boards.take_all_completed(), Slots{});
  boards.arrive(2, {5});
  EXPECT_EQ(boards.take_all_completed(), Slots{5});
}

TEST(NodeBoard, lets_the_leader_find_what_the_last_one_could_not_say_any_more) {
  Boards boards(3, 100);
  for (int seat = 0; seat < 3; ++seat) boards.arrive(seat, {70});
  ASSERT_EQ(boards.take_all_completed(), Slots{70});  // consumes the note about the slot, as if nobody had left it
  NodeBoard leader = boards.another_leader();
  SlotId slot;
  EXPECT_FALSE(leader.take_completed(slot));
  leader.look_at_all_slots();
  EXPECT_TRUE(leader.take_completed(slot));
  EXPECT_EQ(slot, SlotId{70});
  EXPECT_FALSE(leader.take_completed(slot));
  leader.look_at_all_slots();
  EXPECT_FALSE(leader.take_completed(slot));
}

TEST(NodeBoard, knows_who_has_left) {
  Boards boards(3);
  boards.seat(1).leave();
  for (int seat = 0; seat < 3; ++seat) {
    EXPECT_FALSE(boards.seat(seat).has_left(Seat{0}));
    EXPECT_TRUE(boards.seat(seat).has_left(Seat{1}));
    EXPECT_FALSE(boards.seat(seat).has_left(Seat{2}));
  }
}

TEST(NodeBoard, tells_every_seat_the_first_loss_in_the_words_of_who_noticed) {
  Boards boards(3);
  EXPECT_FALSE(boards.leader().has_lost());
  EXPECT_FALSE(boards.leader().loss());
  boards.seat(2).announce_lost(Rank{7}, "rank 7 gives no sign of life");
  boards.seat(1).announce_lost(Rank{2}, "rank 2 has ended");
  for (int seat = 0; seat < 3; ++seat) {
    EXPECT_TRUE(boards.seat(seat).has_lost());
    ASSERT_TRUE(boards.seat(seat).loss());
    EXPECT_EQ(boards.seat(seat).loss()->rank, Rank{7});
    EXPECT_EQ(boards.seat(seat).loss()->why, "rank 7 gives no sign of life");
  }
}

TEST(NodeBoard, cuts_words_about_a_loss_that_are_too_long) {
  Boards boards(2);
  boards.seat(1).announce_lost(Rank{0}, std::string(100'000, 'x'));
  ASSERT_TRUE(boards.leader().loss());
  EXPECT_EQ(boards.leader().loss()->rank, Rank{0});
  EXPECT_GT(boards.leader().loss()->why.size(), 1000u);
  EXPECT_LT(boards.leader().loss()->why.size(), 10'000u);
}

// ---- requests and the log ----

// Returns record number `number` of a writer. Its bytes depend on both numbers; its length is any up to `largest`.
Buffer record(int writer, std::uint32_t number, std::size_t largest) {
  std::mt19937 random(static_cast<unsigned>(writer) * 7919 + number);
  std::size_t size = number % 17 == 16 ? largest : random() % (number % 3 == 0 ? largest : 100);
  Buffer bytes(size);
  std::uint32_t value = random() % 256;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(value++);
  return bytes;
}

bool is_equal(ConstBytes found, const Buffer& expected) {
  return std::equal(found.begin(), found.end(), expected.begin(), expected.end());
}

TEST(NodeBoard, keeps_the_requests_of_every_seat_in_order_through_full_and_wrapped_rings) {
  Boards boards(3);
  const std::size_t largest = boards.leader().largest_request();
  std::vector<std::uint32_t> sent(3, 0), taken(3, 0);
  std::mt19937 random(11);
  int refusals = 0;
  while (sent[0] < 600 || sent[1] < 600 || sent[2] < 600) {
    int seat = static_cast<int>(random() % 3);
    auto index = static_cast<std::size_t>(seat);
    // Sends some requests, fewer if the ring is full. Then the leader takes some.
    for (auto count = random() % 60; count > 0; --count) {
      if (!boards.seat(seat).send_request(record(seat, sent[index], largest))) {
        ++refusals;
        break;
      }
      ++sent[index];
    }
    Seat from;
    ConstBytes request;
    for (auto count = random() % 60; count > 0 && boards.leader().take_request(from, request); --count) {
      auto sender = static_cast<std::size_t>(from.value);
      ASSERT_TRUE(is_equal(request, record(from.value, taken[sender], largest))) << "of seat " << from.value;
      ++taken[sender];
    }
  }
  EXPECT_GT(refusals, 10);
  Seat from;
  for (ConstBytes request; boards.leader().take_request(from, request);) {
    auto sender = static_cast<std::size_t>(from.value);
    ASSERT_TRUE(is_equal(request, record(from.value, taken[sender]++, largest)));
  }
  EXPECT_EQ(taken, sent);
}

TEST(NodeBoard, has_room_for_requests_again_once_the_leader_asks_for_the_next) {
  Boards boards(2);
  Buffer largest(boards.leader().largest_request() - 16);
  int sent = 0;
  while (boards.seat(1).send_request(largest)) ++sent;
  ASSERT_GE(sent, 3);
  EXPECT_TRUE(boards.seat(0).send_request(largest)) << "another seat's ring is its own";
  Seat from;
  ConstBytes request;
  for (int taken = 0; taken < 2; ++taken) ASSERT_TRUE(boards.leader().take_request(from, request));
  // The leader may still read the request that it took last. Therefore at most one of the two places is free already.
  int room = 0;
  while (boards.seat(1).send_request(largest)) ++room;
  EXPECT_LE(room, 1);
  while (boards.leader().take_request(from, request)) continue;
  for (room = 0; boards.seat(1).send_request(largest);) ++room;
  EXPECT_GE(room, 3);
}

TEST(NodeBoard, wakes_the_leader_for_a_request_and_everybody_else_for_a_record) {
  Boards boards(3);
  Posts leader(boards.seat(0).wake_word(Seat{0})), second(boards.seat(0).wake_word(Seat{1})),
      third(boards.seat(0).wake_word(Seat{2}));
  ASSERT_TRUE(boards.seat(1).send_request(as_bytes("please")));
  EXPECT_TRUE(leader.was_posted());
  EXPECT_FALSE(second.was_posted() || third.was_posted());
  ASSERT_TRUE(boards.leader().send_request(as_bytes("please")));
  EXPECT_TRUE(leader.was_posted());
  ASSERT_TRUE(boards.leader().append(as_bytes("done")));
  EXPECT_FALSE(leader.was_posted());
  EXPECT_TRUE(second.was_posted());
  EXPECT_TRUE(third.was_posted());
}

TEST(NodeBoard, shows_every_record_to_slow_and_quick_readers_though_the_log_wraps_often) {
  Boards boards(4);
  const std::size_t largest = boards.leader().largest_record();
  std::vector<std::uint32_t> read(4, 0), published(4, 0);
  std::uint32_t appended = 0;
  std::mt19937 random(13);
  const std::uint32_t wanted = testing::is_sanitized ? 150 : 500;
  int refusals = 0;
  while (*std::min_element(read.begin(), read.end()) < wanted) {
    for (auto count = random() % 20; count > 0; --count) {
      if (!boards.leader().append(record(0, appended, largest))) {
        ++refusals;
        break;
      }
      ++appended;
    }
    // Seat 3 reads slowly. A seat may read for a while before it tells the leader that it has read.
    for (int seat = 0; seat < 4; ++seat) {
      auto index = static_cast<std::size_t>(seat);
      ConstBytes found;
      for (auto count = random() % (seat == 3 ? 6u : 40u); count > 0 && boards.seat(seat).read(found); --count) {
        ASSERT_TRUE(is_equal(found, record(0, read[index], largest))) << "record " << read[index] << ", seat " << seat;
        ++read[index];
      }
      if (random() % 3 == 0) continue;
      boards.seat(seat).publish_position();
      published[index] = read[index];
    }
    ASSERT_EQ(boards.leader().records_read_by_all(), *std::min_element(published.begin(), published.end()));
  }
  EXPECT_GT(refusals, 10);
}

TEST(NodeBoard, has_no_room_in_the_log_before_the_slowest_has_published_what_it_read) {
  Boards boards(3);
  Buffer largest(boards.leader().largest_record() - 16);
  std::uint64_t appended = 0;
  while (boards.leader().append(largest)) ++appended;
  ASSERT_GE(appended, 3U);
  ConstBytes found;
  for (int seat = 0; seat < 3; ++seat) {
    for (std::uint64_t i = 0; i < appended; ++i) ASSERT_TRUE(boards.seat(seat).read(found));
    EXPECT_FALSE(boards.seat(seat).read(found));
    EXPECT_FALSE(boards.leader().append(largest)) << "before seat " << seat << " has published";
    EXPECT_EQ(boards.leader().records_read_by_all(), 0U);
    boards.seat(seat).publish_position();
  }
  EXPECT_EQ(boards.leader().records_read_by_all(), appended);
  EXPECT_TRUE(boards.leader().append(largest));
}

// Every seat is an engine on its own thread and sleeps on its wake word. A lost wake-up would make the test hang.
TEST(NodeBoard, loses_no_arrival_and_no_wake_up_between_threads) {
  constexpr int seats = 4, rounds = 300, slots = 130;
  Boards boards(seats, slots);
  std::vector<int> completed(slots, 0);
  auto run = [&](int me) {
    NodeBoard& board = boards.seat(me);
    posix::WaitWord& word = board.wake_word(Seat{me});
    std::mt19937 random(static_cast<unsigned>(me));
    for (int round = 0; round < rounds; ++round) {
      // Arrives at all slots in this seat's own order, and announces them in groups of random size.
      Slots order(slots);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      for (int slot : order) {
        board.arrive(SlotId{slot});
        if (random() % 8 == 0) board.announce_arrivals();
      }
      board.announce_arrivals();
      int found = 0;
      auto is_over = [&] {
        SlotId slot;
        ConstBytes bytes;
        for (; me == 0 && board.take_completed(slot); ++found) ++completed[static_cast<std::size_t>(slot.value)];
        if (me == 0 && found == slots) {
          EXPECT_TRUE(board.append(as_bytes("next round")));
          found = 0;
        }
        bool is_read = board.read(bytes);
        if (is_read) board.publish_position();
        return is_read;
      };
      while (!is_over()) {
        std::uint32_t announced = word.announce();
        if (is_over()) {
          word.retract();
          break;
        }
        word.sleep(announced, posix::WaitWord::forever);
      }
    }
  };
  std::vector<std::thread> threads;
  for (int seat = 0; seat < seats; ++seat) threads.emplace_back(run, seat);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(completed, std::vector<int>(slots, rounds));
}

}  // namespace
}  // namespace hvd::control
