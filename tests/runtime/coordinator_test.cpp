#include "runtime/coordinator.hpp"

#include <gtest/gtest.h>

#include <random>

namespace hvd::runtime {
namespace {

Signature floats(std::vector<std::int64_t> shape) {
  Signature signature;
  signature.shape = std::move(shape);
  return signature;
}

// What the coordinator wrote, as short text: "give 0 a", "batch 0 1", "evict 0", "fail a", "shutdown 1".
struct Log {
  std::vector<std::string> lines;
  std::string last_message;

  void operator()(const Record& record) {
    if (auto* give = std::get_if<GiveRecord>(&record)) {
      lines.push_back("give " + std::to_string(give->slot.value) + " " + std::string(give->name));
    } else if (auto* evict = std::get_if<EvictRecord>(&record)) {
      lines.push_back("evict " + std::to_string(evict->slot.value));
    } else if (auto* batch = std::get_if<BatchRecord>(&record)) {
      std::string line = "batch";
      for (SlotId slot : batch->slots) line += " " + std::to_string(slot.value);
      lines.push_back(line);
    } else if (auto* fail = std::get_if<FailRecord>(&record)) {
      lines.push_back("fail " + std::string(fail->name));
      last_message = fail->message;
    } else if (auto* shutdown = std::get_if<ShutdownRecord>(&record)) {
      lines.push_back("shutdown " + std::to_string(shutdown->by.value));
    }
  }
  std::vector<std::string> take() { return std::exchange(lines, {}); }
};

using Lines = std::vector<std::string>;

struct Fixture {
  Log log;
  Coordinator coordinator;

  explicit Fixture(int ranks, std::int64_t threshold = 1000, std::int64_t capacity = 8, int slots = 16)
      : coordinator(
            [&] {
              Coordinator::Settings settings;
              settings.ranks = ranks;
              settings.slots = slots;
              settings.cache_capacity = capacity;
              settings.fusion_threshold_bytes = threshold;
              settings.describe = [](Rank rank) { return "rank " + std::to_string(rank.value); };
              return settings;
            }(),
            [this](const Record& record) { log(record); }) {}

  void everybody_votes(std::string_view name, const Signature& signature, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) coordinator.ballot(Rank{rank}, name, signature);
  }
};

TEST(Coordinator, schedules_an_op_only_after_every_rank_submitted_it) {
  Fixture f(3);
  f.coordinator.ballot(Rank{2}, "a", floats({4}));
  f.coordinator.ballot(Rank{0}, "a", floats({4}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), Lines{});
  f.coordinator.ballot(Rank{1}, "a", floats({4}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0"}));
}

TEST(Coordinator, needs_no_names_once_an_op_has_a_slot) {
  Fixture f(2);
  f.everybody_votes("a", floats({4}), 2);
  f.coordinator.schedule(0);
  f.log.take();
  f.coordinator.all_arrived(SlotId{0});
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"batch 0"}));
}

TEST(Coordinator, names_both_ranks_and_both_values_in_a_mismatch_and_stays_usable) {
  Fixture f(3);
  f.coordinator.ballot(Rank{0}, "a", floats({4}));
  f.coordinator.ballot(Rank{2}, "a", floats({5}));
  EXPECT_EQ(f.log.take(), Lines{});  // every rank must have a submission that can fail
  f.coordinator.ballot(Rank{1}, "a", floats({4}));
  EXPECT_EQ(f.log.take(), (Lines{"fail a"}));
  EXPECT_NE(f.log.last_message.find("Mismatched allreduce tensor shapes"), std::string::npos) << f.log.last_message;
  EXPECT_NE(f.log.last_message.find("rank 0 sent [4], rank 2 sent [5]"), std::string::npos) << f.log.last_message;
  f.everybody_votes("a", floats({4}), 3);
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0"}));
}

TEST(Coordinator, finds_every_kind_of_mismatch) {
  Signature base = floats({2, 3});
  auto changed = [&](auto change) {
    Signature other = base;
    change(other);
    auto text = find_mismatch("t", base, "rank 0", other, "rank 1");
    return text.value_or("none");
  };
  EXPECT_EQ(changed([](Signature&) {}), "none");
  EXPECT_NE(changed([](Signature& s) { s.dtype = DataType::f64; }).find("data types"), std::string::npos);
  EXPECT_NE(changed([](Signature& s) { s.verb = Verb::broadcast; }).find("collective operations"), std::string::npos);
  EXPECT_NE(changed([](Signature& s) { s.shape = {2, 3, 1}; }).find("shapes"), std::string::npos);
  EXPECT_NE(changed([](Signature& s) { s.prescale = 0.5; }).find("prescale"), std::string::npos);
  EXPECT_NE(changed([](Signature& s) { s.postscale = 0.5; }).find("postscale"), std::string::npos);
  EXPECT_NE(changed([](Signature& s) { s.op = ReduceOp::max; }).find("reduce operations"), std::string::npos);
  base.verb = Verb::broadcast;
  EXPECT_NE(changed([](Signature& s) { s.root = Rank{1}; }).find("root ranks"), std::string::npos);
  base.verb = Verb::allgather;
  EXPECT_EQ(changed([](Signature& s) { s.shape[0] = 7; }), "none");
  EXPECT_NE(changed([](Signature& s) { s.shape[1] = 7; }).find("shapes"), std::string::npos);
}

TEST(Coordinator, evicts_a_slot_when_somebody_changed_the_op_and_lets_ballots_decide) {
  Fixture f(2);
  f.everybody_votes("a", floats({4}), 2);
  f.coordinator.schedule(0);
  f.log.take();
  f.coordinator.ballot(Rank{1}, "a", floats({8}));
  EXPECT_EQ(f.log.take(), (Lines{"evict 0"}));
  f.coordinator.ballot(Rank{0}, "a", floats({8}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 1 a", "batch 1"}));
}

TEST(Coordinator, ignores_a_late_word_about_an_evicted_slot) {
  Fixture f(2);
  f.everybody_votes("a", floats({4}), 2);
  f.coordinator.schedule(0);
  f.coordinator.ballot(Rank{1}, "a", floats({8}));
  f.log.take();
  f.coordinator.all_arrived(SlotId{0});
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), Lines{});
}

TEST(Coordinator, gives_a_slot_again_only_after_all_have_read_its_end) {
  Fixture f(1, 1000, 8, 1);
  f.coordinator.ballot(Rank{0}, "a", floats({4}));
  f.coordinator.schedule(0);
  f.coordinator.ballot(Rank{0}, "a", floats({5}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0", "evict 0"}));
  f.coordinator.read_by_all(2);
  EXPECT_EQ(f.log.take(), Lines{});
  f.coordinator.read_by_all(3);
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0"}));
}

TEST(Coordinator, forgets_transient_ops_after_their_batch) {
  Fixture f(1);
  Signature once = floats({4});
  once.transient = true;
  f.coordinator.ballot(Rank{0}, "noname.1", once);
  f.coordinator.schedule(0);
  f.coordinator.read_by_all(2);
  f.coordinator.ballot(Rank{0}, "noname.1", once);
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 noname.1", "batch 0", "give 0 noname.1", "batch 0"}));
}

TEST(Coordinator, evicts_the_least_recently_used_op_over_capacity) {
  Fixture f(1, 0, 2);
  for (const char* name : {"a", "b"}) {
    f.coordinator.ballot(Rank{0}, name, floats({4}));
    f.coordinator.schedule(0);
  }
  f.coordinator.all_arrived(SlotId{0});  // "a" is used again
  f.coordinator.schedule(0);
  f.log.take();
  f.coordinator.ballot(Rank{0}, "c", floats({4}));
  EXPECT_EQ(f.log.take(), (Lines{"give 2 c", "evict 1"}));
}

TEST(Coordinator, fuses_neighbours_of_like_kind_up_to_the_threshold_and_keeps_the_order_of_the_rest) {
  Fixture f(1, 40);
  Signature doubles = floats({2});
  doubles.dtype = DataType::f64;
  f.coordinator.ballot(Rank{0}, "a", floats({4}));  // 16 bytes
  f.coordinator.ballot(Rank{0}, "d", doubles);      // 16 bytes of another type
  f.coordinator.ballot(Rank{0}, "b", floats({4}));
  f.coordinator.ballot(Rank{0}, "c", floats({4}));  // would be 48
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "give 1 d", "give 2 b", "give 3 c", "batch 0 2", "batch 1", "batch 3"}));
}

TEST(Coordinator, sends_every_op_alone_with_threshold_zero) {
  Fixture f(1, 0);
  f.coordinator.ballot(Rank{0}, "a", floats({4}));
  f.coordinator.ballot(Rank{0}, "b", floats({4}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "give 1 b", "batch 0", "batch 1"}));
}

TEST(Coordinator, lets_small_ops_gather_while_batches_are_in_flight) {
  Fixture f(1, 100);
  f.coordinator.ballot(Rank{0}, "a", floats({4}));
  f.coordinator.schedule(1);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a"}));
  f.coordinator.ballot(Rank{0}, "b", floats({30}));  // together over the threshold
  f.coordinator.schedule(1);
  EXPECT_EQ(f.log.take(), (Lines{"give 1 b", "batch 0", "batch 1"}));
}

TEST(Coordinator, schedules_what_is_ready_and_then_ends_the_log_at_the_first_wish_to_shut_down) {
  Fixture f(2);
  f.everybody_votes("a", floats({4}), 2);
  f.coordinator.ballot(Rank{0}, "b", floats({4}));
  f.coordinator.shut_down(Rank{1}, "");
  f.coordinator.shut_down(Rank{0}, "");
  f.coordinator.ballot(Rank{1}, "b", floats({4}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0", "shutdown 1"}));
}

TEST(Coordinator, says_who_is_missing) {
  Fixture f(3);
  f.coordinator.ballot(Rank{1}, "a", floats({4}));
  auto waiting = f.coordinator.waiting();
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting[0].name, "a");
  EXPECT_EQ(waiting[0].missing, (std::vector<Rank>{Rank{0}, Rank{2}}));
}

// Ballots of many ops in any order, from all ranks: every op is scheduled exactly once, and the log of the same ballots
// is the same.
TEST(Coordinator, schedules_every_op_once_whatever_the_order_of_the_ballots) {
  constexpr int ranks = 4, ops = 12;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::pair<int, int>> ballots;
    for (int rank = 0; rank < ranks; ++rank)
      for (int op = 0; op < ops; ++op) ballots.emplace_back(rank, op);
    std::shuffle(ballots.begin(), ballots.end(), random);
    Fixture f(ranks, 64, 4, 6);
    std::uint64_t read = 0;
    for (auto [rank, op] : ballots) {
      f.coordinator.ballot(Rank{rank}, "op" + std::to_string(op), floats({op + 1}));
      f.coordinator.schedule(static_cast<int>(random() % 2));
      if (random() % 3 == 0) f.coordinator.read_by_all(read = f.log.lines.size());
    }
    // No further ballots: everything that waits for a slot gets one as the log is read.
    for (int i = 0; i < ops; ++i) {
      f.coordinator.schedule(0);
      f.coordinator.read_by_all(f.log.lines.size());
    }
    int given = 0, batched = 0;
    for (const std::string& line : f.log.lines) {
      given += line.starts_with("give");
      if (line.starts_with("batch")) batched += static_cast<int>(std::count(line.begin(), line.end(), ' '));
    }
    EXPECT_EQ(given, ops) << "seed " << seed;
    EXPECT_EQ(batched, ops) << "seed " << seed;
  }
}

}  // namespace
}  // namespace hvd::runtime
