#include "runtime/agreement/coordinator.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "runtime/floats.hpp"

namespace hvd::runtime {
namespace {

using testing::floats;

// The coordinator's records as short texts: "give 0 a", "batch 0 1", "evict 0", "fail a", "shutdown 1".
struct Log {
  std::vector<std::string> lines;
  std::string last_message;

  void operator()(const Record& record) {
    if (auto* give = std::get_if<GiveRecord>(&record)) {
      lines.push_back("give " + std::to_string(give->slot.value) + " " + std::string(give->name.name));
    } else if (auto* evict = std::get_if<EvictRecord>(&record)) {
      lines.push_back("evict " + std::to_string(evict->slot.value));
    } else if (auto* batch = std::get_if<BatchRecord>(&record)) {
      std::string line = "batch";
      for (SlotId slot : batch->slots) line += " " + std::to_string(slot.value);
      lines.push_back(line);
    } else if (auto* fail = std::get_if<FailRecord>(&record)) {
      lines.push_back("fail " + std::string(fail->name.name));
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
  ProcessSets sets{4};
  Clock::time_point now{};
  Coordinator coordinator;

  explicit Fixture(std::int64_t threshold = 1000, std::int64_t capacity = 8, int slots = 16)
      : coordinator(
            [&] {
              Coordinator::Settings settings;
              settings.slots = slots;
              settings.cache_capacity = capacity;
              settings.fusion_threshold_bytes = threshold;
              settings.device_fusion_threshold_bytes = threshold / 2;
              settings.enough_for_an_idle_device = threshold / 5;
              settings.linger = std::chrono::milliseconds(5);
              settings.now = [this] { return now; };
              return settings;
            }(),
            sets, [this](const Record& record) { log(record); }) {}

  void everybody_votes(const std::string& name, const Signature& signature) {
    coordinator.contest(name);
    coordinator.agreed(name, signature);
  }
};

TEST(Coordinator, needs_no_names_once_an_op_has_a_slot) {
  Fixture f;
  f.everybody_votes("a", floats({4}));
  f.coordinator.schedule(0);
  f.log.take();
  f.coordinator.all_arrived(SlotId{0});
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"batch 0"}));
}

TEST(Coordinator, fails_what_ranks_disagree_about_and_stays_usable) {
  Fixture f;
  f.coordinator.disagreed("a", "Mismatched shapes");
  EXPECT_EQ(f.log.take(), (Lines{"fail a"}));
  EXPECT_EQ(f.log.last_message, "Mismatched shapes");
  f.everybody_votes("a", floats({4}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0"}));
}

TEST(Coordinator, evicts_a_slot_when_somebody_changed_the_op_and_lets_ballots_decide) {
  Fixture f;
  f.everybody_votes("a", floats({4}));
  f.coordinator.schedule(0);
  f.log.take();
  f.coordinator.contest("a");
  EXPECT_EQ(f.log.take(), (Lines{"evict 0"}));
  f.coordinator.agreed("a", floats({8}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 1 a", "batch 1"}));
}

TEST(Coordinator, ignores_a_late_word_about_an_evicted_slot) {
  Fixture f;
  f.everybody_votes("a", floats({4}));
  f.coordinator.schedule(0);
  f.coordinator.contest("a");
  f.log.take();
  f.coordinator.all_arrived(SlotId{0});
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), Lines{});
}

TEST(Coordinator, gives_a_slot_again_only_after_all_have_read_its_end) {
  Fixture f(1000, 8, 1);
  f.everybody_votes("a", floats({4}));
  f.coordinator.schedule(0);
  f.everybody_votes("a", floats({5}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0", "evict 0"}));
  f.coordinator.read_by_all(2);
  EXPECT_EQ(f.log.take(), Lines{});
  f.coordinator.read_by_all(3);
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0"}));
}

TEST(Coordinator, forgets_transient_ops_after_their_batch) {
  Fixture f;
  Signature once = floats({4});
  once.transient = true;
  f.everybody_votes("noname.1", once);
  f.coordinator.schedule(0);
  f.coordinator.read_by_all(2);
  f.everybody_votes("noname.1", once);
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 noname.1", "batch 0", "give 0 noname.1", "batch 0"}));
}

TEST(Coordinator, evicts_the_least_recently_used_op_over_capacity) {
  Fixture f(0, 2);
  for (const char* name : {"a", "b"}) {
    f.everybody_votes(name, floats({4}));
    f.coordinator.schedule(0);
  }
  f.coordinator.all_arrived(SlotId{0});  // the ranks use "a" again
  f.coordinator.schedule(0);
  f.log.take();
  f.everybody_votes("c", floats({4}));
  EXPECT_EQ(f.log.take(), (Lines{"give 2 c", "evict 1"}));
}

// If making room looked at ready ops, too, the time would grow with the square of their number: this test would take
// minutes.
void makes_room(int capacity) {
  const int names = 2 * capacity;
  Fixture f(1 << 30, capacity, names + 1);
  for (int i = 0; i < names; ++i) f.everybody_votes(std::to_string(i), floats({1}));
  f.coordinator.schedule(0);
  f.log.take();
  f.coordinator.contest("0");
  f.everybody_votes("next", floats({1}));
  const Lines lines = f.log.take();
  ASSERT_EQ(lines.size(), 2u + static_cast<unsigned>(capacity));
  EXPECT_EQ(lines[0], "evict 0");
  EXPECT_EQ(lines[1], "give " + std::to_string(names) + " next");
  EXPECT_EQ(lines[2], "evict 1") << "the oldest";
}

TEST(Coordinator, makes_room_by_evicting_the_oldest_of_many_ops_that_are_ready) {
  makes_room(15'000);
}

// If each eviction looked at all of them, this would take longer than a test may.
TEST(Coordinator, makes_room_without_looking_at_all_ops_that_are_ready_slow) {
  makes_room(150'000);
}

TEST(Coordinator, adds_a_set_of_more_ranks_than_a_list_of_them_in_a_request_could_name) {
  std::vector<Rank> ranks;
  for (int rank = 1; rank < 20'000; rank += 2) ranks.emplace_back(rank);
  Signature add;
  add.verb = Verb::add_set;
  add.dtype = DataType::i32;
  add.shape = bits_of(ranks);
  EXPECT_EQ(ranks_in(add.shape), ranks);
  Buffer request;
  encode(Request(OpRequest{add_set_name, add, 0}), request);
  EXPECT_LT(request.size(), 4096u);
  std::vector<Rank> added;
  ProcessSets sets(20'000);
  Coordinator::Settings settings;
  settings.slots = 1;
  Coordinator coordinator(settings, sets, [&](const Record& record) {
    const auto& it = std::get<AddSetRecord>(record);
    added.assign(it.ranks.begin(), it.ranks.end());
  });
  coordinator.agreed(add_set_name, add);
  EXPECT_EQ(added, ranks);
  // A shape of such an op is no size of a tensor: it is never too large, and its numbers may be negative.
  EXPECT_EQ(add.bytes(1), 0);
  Signature other = add;
  other.shape = bits_of(std::vector{Rank{0}, Rank{63}});
  EXPECT_EQ(
      find_mismatch("x", other, "rank 0", add, "rank 1"),
      "Mismatched ranks for 'x': rank 0 sent [0, 63], rank 1 sent [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, "
      "27, 29, 31, …]. All ranks must add the same process sets in the same order.");
}

TEST(Coordinator, fuses_neighbours_of_like_kind_up_to_the_threshold_and_keeps_the_order) {
  Fixture f(40);
  Signature doubles = floats({2});
  doubles.dtype = DataType::f64;
  f.everybody_votes("a", floats({4}));  // the tensor has 16 bytes
  f.everybody_votes("d", doubles);      // the tensor has 16 bytes of another type
  f.everybody_votes("b", floats({4}));
  f.everybody_votes("c", floats({4}));  // would make 48 bytes
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "give 1 d", "give 2 b", "give 3 c", "batch 0 2", "batch 1", "batch 3"}));
}

TEST(Coordinator, sends_every_op_alone_with_threshold_zero) {
  Fixture f(0);
  f.everybody_votes("a", floats({4}));
  f.everybody_votes("b", floats({4}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "give 1 b", "batch 0", "batch 1"}));
}

TEST(Coordinator, lets_small_ops_gather_while_batches_are_in_flight) {
  Fixture f(100);
  f.everybody_votes("a", floats({4}));
  f.coordinator.schedule(1);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a"}));
  f.everybody_votes("b", floats({30}));  // both tensors together are over the threshold
  f.coordinator.schedule(1);
  EXPECT_EQ(f.log.take(), (Lines{"give 1 b", "batch 0", "batch 1"}));
}

Signature on_device(std::vector<std::int64_t> shape) {
  Signature signature = floats(std::move(shape));
  signature.device = DeviceKind::cuda;
  return signature;
}

TEST(Coordinator, lets_ops_of_a_busy_device_gather_up_to_their_own_threshold) {
  Fixture f;  // 1000 bytes, on a device 500
  f.everybody_votes("a", on_device({50}));
  f.coordinator.schedule(3);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a"}));
  f.everybody_votes("b", on_device({80}));  // 200 + 320 bytes
  f.coordinator.schedule(3);
  EXPECT_EQ(f.log.take(), (Lines{"give 1 b", "batch 0", "batch 1"}));
}

TEST(Coordinator, lets_ops_of_a_busy_device_wait_no_longer_than_the_cycle_time) {
  Fixture f;
  f.everybody_votes("a", on_device({4}));
  f.coordinator.schedule(1);
  EXPECT_EQ(f.coordinator.linger_due(), f.now + std::chrono::milliseconds(5));
  f.now += std::chrono::milliseconds(4);
  f.everybody_votes("b", on_device({4}));
  f.coordinator.schedule(1);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "give 1 b"}));
  f.now += std::chrono::milliseconds(1);
  f.coordinator.schedule(1);
  EXPECT_EQ(f.log.take(), (Lines{"batch 0 1"}));
  EXPECT_EQ(f.coordinator.linger_due(), std::nullopt);
  f.everybody_votes("c", on_device({4}));
  f.coordinator.schedule(1);
  EXPECT_EQ(f.coordinator.linger_due(), f.now + std::chrono::milliseconds(5)) << "counted anew";
}

TEST(Coordinator, lets_no_op_of_a_device_wait_for_company_while_a_program_waits) {
  Fixture f;
  f.everybody_votes("a", on_device({4}));
  f.coordinator.schedule(1);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a"}));
  f.coordinator.set_program_waits(true);
  f.coordinator.schedule(1);
  EXPECT_EQ(f.log.take(), (Lines{"batch 0"}));
  f.coordinator.set_program_waits(false);
  f.coordinator.all_arrived(SlotId{0});
  f.coordinator.schedule(1);
  EXPECT_EQ(f.log.take(), (Lines{}));
}

TEST(Coordinator, lets_an_op_that_a_program_waits_for_gather_others_behind_two_batches) {
  Fixture f;
  f.coordinator.set_program_waits(true);
  for (const char* name : {"a", "b"}) {
    f.everybody_votes(name, on_device({4}));
    f.coordinator.schedule(2);
  }
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "give 1 b"}));
  f.coordinator.schedule(1);
  EXPECT_EQ(f.log.take(), (Lines{"batch 0 1"}));
}

TEST(Coordinator, lets_a_few_small_ops_of_an_idle_device_wait_for_others) {
  Fixture f;  // 200 bytes are enough
  for (const char* name : {"a", "b", "c"}) {
    f.everybody_votes(name, on_device({20}));
    f.coordinator.schedule(0);
  }
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "give 1 b", "give 2 c", "batch 0 1 2"}));
  f.coordinator.all_arrived(SlotId{0});
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{}));
  EXPECT_EQ(f.coordinator.linger_due(), f.now + std::chrono::milliseconds(1));
  f.now = *f.coordinator.linger_due();
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"batch 0"}));
  f.coordinator.all_arrived(SlotId{1});
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{}));
  f.coordinator.set_program_waits(true);
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"batch 1"}));
}

TEST(Coordinator, lets_nothing_linger_when_the_log_ends) {
  Fixture f;
  f.everybody_votes("a", on_device({4}));
  f.coordinator.schedule(1);
  f.coordinator.shut_down(Rank{1}, "");
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0", "shutdown 1"}));
}

TEST(Coordinator, counts_batches_by_kind_of_memory) {
  Fixture f;
  f.everybody_votes("a", floats({4}));
  f.everybody_votes("b", on_device({4}));
  f.coordinator.schedule([](ProcessSetId, DeviceKind kind) { return std::optional(kind == DeviceKind::host ? 0 : 1); });
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "give 1 b", "batch 0"}));
}

TEST(Coordinator, knows_whether_a_device_is_busy_in_a_set_that_it_is_not_in) {
  Fixture f;
  const ProcessSetId set = f.sets.add({Rank{1}, Rank{2}}).id;
  const auto not_a_member = [](ProcessSetId, DeviceKind) { return std::optional<int>(); };
  auto ready = [&](const char* name) {
    f.coordinator.contest({set, name});
    f.coordinator.agreed({set, name}, on_device({60}));
    f.coordinator.schedule(not_a_member);
  };
  ready("a");
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0"}));
  ready("b");
  ready("c");
  EXPECT_EQ(f.log.take(), (Lines{"give 1 b", "give 2 c"}));
  f.coordinator.batch_ended(set, DeviceKind::cuda);
  f.coordinator.schedule(not_a_member);
  EXPECT_EQ(f.log.take(), (Lines{"batch 1 2"}));
}

TEST(Coordinator, counts_no_batches_of_a_set_that_it_is_in) {
  Fixture f;
  for (const char* name : {"a", "b"}) {
    f.everybody_votes(name, on_device({60}));
    f.coordinator.schedule([](ProcessSetId, DeviceKind) { return std::optional<int>(); });
  }
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0", "give 1 b", "batch 1"}));
}

TEST(Coordinator, schedules_what_is_ready_and_then_ends_the_log_at_the_first_request_to_shut_down) {
  Fixture f;
  f.everybody_votes("a", floats({4}));
  f.coordinator.shut_down(Rank{1}, "");
  f.coordinator.shut_down(Rank{0}, "");
  f.everybody_votes("b", floats({4}));
  f.coordinator.schedule(0);
  EXPECT_EQ(f.log.take(), (Lines{"give 0 a", "batch 0", "shutdown 1"}));
}

// Ops in any order, with and without batches in flight, and logs that are read late. Every op must be scheduled exactly
// once.
TEST(Coordinator, schedules_every_op_once_whatever_the_order) {
  constexpr int ops = 12;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<int> order(ops);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    Fixture f(64, 4, 6);
    for (int op : order) {
      f.everybody_votes("op" + std::to_string(op), floats({op + 1}));
      f.coordinator.schedule(static_cast<int>(random() % 2));
      if (random() % 3 == 0) f.coordinator.read_by_all(f.log.lines.size());
    }
    // No more ops come. Every op that waits for a slot must get one when the log is read.
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
