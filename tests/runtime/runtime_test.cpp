// Whole runtimes, one per thread, which communicate over links in the process: what they do in step after step.
#include "runtime/runtime.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "runtime_rig.hpp"
#include "sanitized.hpp"

namespace hvd::runtime {
namespace {

using testing::Ensemble;
using testing::part;
using testing::parts;
using testing::RankThread;
using testing::Rig;
using testing::run_ranks;
using testing::shapes_of;
using testing::start_time;
using testing::sums;
using testing::ThreeRanks;
using testing::with_runtimes;

INSTANTIATE_TEST_SUITE_P(on_nodes_of, ThreeRanks,
                         ::testing::Values(std::vector{3}, std::vector{2, 1}, std::vector{1, 1, 1}));

TEST(Runtime, reduces_what_all_ranks_submitted) {
  for (int ranks : {1, 2, 3, 5})
    for (const std::vector<int>& shape : shapes_of(ranks)) {
      Ensemble ensemble(testing::made_up_world(shape));
      with_runtimes(ensemble, [&](Rig& rig, int rank) {
        for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
          auto data = parts(rank, count);
          EXPECT_EQ(rig.allreduce("sum" + std::to_string(count), data), "");
          EXPECT_EQ(data, sums(ranks, count));
        }
      });
    }
}

TEST(Runtime, does_not_care_in_which_order_ranks_submit) {
  constexpr int ranks = 3, ops = 20;
  for (unsigned seed = 0; seed < 12; ++seed) {
    Ensemble ensemble(testing::made_up_world(shapes_of(ranks)[seed % 3]));
    with_runtimes(ensemble, [&](Rig& rig, int rank) {
      std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
      for (int round = 0; round < 4; ++round) {
        std::vector<int> order(ops);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), random);
        std::vector<std::vector<float>> data;
        for (int op = 0; op < ops; ++op) data.push_back(parts(rank, static_cast<std::size_t>(op)));
        std::vector<Handles::Number> handles;
        for (int op : order) {
          auto& it = data[static_cast<std::size_t>(op)];
          auto handle = rig.start({{Rig::floats(op), "op" + std::to_string(op), it.data(), it.data()}});
          ASSERT_TRUE(handle) << handle.error().message;
          handles.push_back(*handle);
        }
        for (auto handle : handles) EXPECT_EQ(rig.finish(handle), "");
        for (int op = 0; op < ops; ++op)
          EXPECT_EQ(data[static_cast<std::size_t>(op)], sums(ranks, static_cast<std::size_t>(op)));
      }
    });
  }
}

TEST(Runtime, sends_no_strings_and_plans_nothing_once_the_set_of_ops_repeats) {
  Ensemble ensemble(testing::made_up_world({2}));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    auto step = [&] {
      std::vector<std::vector<float>> data(50, parts(rank, 10));
      std::vector<Rig::Use> uses;
      for (std::size_t op = 0; op < data.size(); ++op)
        uses.push_back({Rig::floats(10), "gradient" + std::to_string(op), data[op].data(), data[op].data()});
      auto handle = rig.start(uses);
      ASSERT_TRUE(handle);
      EXPECT_EQ(rig.finish(*handle), "");
      EXPECT_EQ(data[49], sums(2, 10));
    };
    step();
    step();
    auto requests = rig.runtime->counters().requests_sent.get();
    auto plans = rig.runtime->counters().plans.get();
    for (int i = 0; i < 50; ++i) step();
    EXPECT_EQ(rig.runtime->counters().requests_sent.get(), requests);
    EXPECT_EQ(rig.runtime->counters().plans.get(), plans);
  });
}

TEST_P(ThreeRanks, plan_nothing_for_a_scale_that_is_new_in_every_step) {
  Ensemble ensemble(testing::made_up_world(GetParam()));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    auto step = [&](double prescale, double postscale) {
      // A tensor that travels in one piece, and one that is cut into chunks.
      for (std::size_t count : {10u, 200'000u}) {
        auto data = parts(rank, count), expected = sums(3, count);
        for (float& value : expected) value = static_cast<float>(value * prescale * postscale);
        Signature signature = Rig::floats(static_cast<std::int64_t>(count));
        signature.prescale = prescale;
        signature.postscale = postscale;
        auto handle = rig.start({{signature, "scaled " + std::to_string(count), data.data(), data.data()}});
        ASSERT_TRUE(handle) << handle.error().message;
        EXPECT_EQ(rig.finish(*handle), "");
        EXPECT_EQ(data, expected) << prescale << " and " << postscale;
      }
    };
    step(1, 1);
    auto plans = rig.runtime->counters().plans.get();
    for (int i : {-10, -3, -1, 0, 2, 9}) step(std::ldexp(1.0, i), std::ldexp(1.0, -i / 2));
    step(1, 1);
    EXPECT_EQ(rig.runtime->counters().plans.get(), plans);
  });
}

TEST(Runtime, forgets_operations_that_nobody_holds_and_that_have_no_slot) {
  Ensemble ensemble(testing::made_up_world({2}));
  ensemble.config.cache_capacity = 8;
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    auto use = [&](const std::string& name, double postscale) {
      auto data = parts(rank, 10);
      Signature signature = Rig::floats(10);
      signature.postscale = postscale;
      auto operation = rig.runtime->prepare(name, signature);
      ASSERT_TRUE(operation);
      Start start{*operation, data.data(), data.data(), 0};
      auto handle = rig.runtime->submit({&start, 1});
      ASSERT_TRUE(handle);
      rig.runtime->release(**operation);  // released while the operation is under way
      EXPECT_EQ(rig.finish(*handle), "");
    };
    for (int i = 0; i < 100; ++i) use("name " + std::to_string(i), 1);
    for (int i = 0; i < 100; ++i) use("scaled", 1.0 / (i + 1));
    // One operation may just be leaving the cache while another one enters it: up to 8 + 2.
    EXPECT_LE(rig.runtime->operations(), 10u);
    for (int i = 0; i < 3; ++i) use("again", 1);
    auto requests = rig.runtime->counters().requests_sent.get();
    use("again", 1);
    EXPECT_EQ(rig.runtime->counters().requests_sent.get(), requests) << "a slot outlives who asked for it";
  });
}

TEST(Runtime, keeps_an_operation_that_is_held_however_many_others_come_and_go) {
  Ensemble ensemble(testing::made_up_world({2}));
  ensemble.config.cache_capacity = 4;
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    auto held = rig.runtime->prepare("held", Rig::floats(3));
    ASSERT_TRUE(held);
    for (int i = 0; i < 50; ++i) {
      auto other = parts(rank, 3);
      EXPECT_EQ(rig.allreduce("name " + std::to_string(i), other), "");
    }
    auto data = parts(rank, 3);
    Start start{*held, data.data(), data.data(), 0};
    auto handle = rig.runtime->submit({&start, 1});
    ASSERT_TRUE(handle);
    EXPECT_EQ(rig.finish(*handle), "");
    EXPECT_EQ(data, sums(2, 3));
  });
}

TEST_P(ThreeRanks, plan_nothing_for_rows_that_are_new_in_every_step) {
  Ensemble ensemble(testing::made_up_world(GetParam()));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    const auto rows_of = [](int of, int step) { return static_cast<std::int64_t>((of * 31 + step * 7) % 50); };
    auto step = [&](int number) {
      std::vector<float> mine(static_cast<std::size_t>(rows_of(rank, number)), static_cast<float>(rank)), expected;
      for (int of = 0; of < 3; ++of)
        expected.insert(expected.end(), static_cast<std::size_t>(rows_of(of, number)), static_cast<float>(of));
      Signature signature = Rig::floats(0);
      signature.verb = Verb::allgather;
      auto handle = rig.start({{signature, "gather", mine.data(), nullptr, rows_of(rank, number)}});
      ASSERT_TRUE(handle);
      HandleCell& cell = *rig.runtime->find(*handle);
      ASSERT_TRUE(rig.runtime->wait(cell, Deadline::after(start_time)));
      const auto* all = reinterpret_cast<const float*>(cell.results.at(0).data.data());
      EXPECT_EQ(std::vector<float>(all, all + cell.results.at(0).shape.at(0)), expected);
      rig.runtime->release(cell);
      // Another shape is another operation, but the shares need no plan either.
      const std::int64_t all_rows = 3 + number % 40;
      std::vector<float> data(static_cast<std::size_t>(all_rows), 1.0f), share(data.size());
      signature = Rig::floats(all_rows);
      signature.verb = Verb::reduce_scatter;
      handle = rig.start({{signature, "scatter" + std::to_string(all_rows), data.data(), share.data()}});
      ASSERT_TRUE(handle);
      EXPECT_EQ(rig.finish(*handle), "");
      EXPECT_EQ(share[0], 3);
    };
    step(0);
    step(1);
    const auto plans = rig.runtime->counters().plans.get();
    for (int number = 2; number < 60; ++number) step(number);
    EXPECT_EQ(rig.runtime->counters().plans.get(), plans);
  });
}

// The number of rows of all ranks together is known only when the ranks have met.
// A program may call join() while operations are under way.
TEST_P(ThreeRanks, finish_what_is_under_way_as_they_join) {
  Ensemble ensemble(testing::made_up_world(GetParam()));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    for (int round = 0; round < 10; ++round) {
      for (int step = 0; step < 3; ++step) {  // from the second step on the operation has a slot
        auto data = parts(rank, 10);
        EXPECT_EQ(rig.allreduce("x", data), "");
      }
      std::vector<std::vector<float>> mine(2, parts(rank, 10));
      std::int32_t last = -1;
      Signature join;
      join.verb = Verb::join;
      join.transient = true;
      // Two of the ranks have "x" under way, and each also an operation that no other rank has submitted. The third
      // rank has none.
      std::vector<Handles::Number> handles;
      auto start = [&](const Rig::Use& use) {
        auto handle = rig.start({use});
        ASSERT_TRUE(handle) << handle.error().message;
        handles.push_back(*handle);
      };
      if (rank != round % 3) {
        start({Rig::floats(10), "x", mine[0].data(), mine[0].data()});
        start({Rig::floats(10), "of " + std::to_string(rank), mine[1].data(), mine[1].data()});
      }
      start({join, "join", nullptr, &last});
      for (auto handle : handles) EXPECT_EQ(rig.finish(handle), "");
      EXPECT_TRUE(last >= 0 && last < 3) << last;
      if (rank == round % 3) continue;
      EXPECT_EQ(mine[1], parts(rank, 10));
      auto both = sums(3, 10);
      for (std::size_t i = 0; i < both.size(); ++i) both[i] -= part(round % 3, i);
      EXPECT_EQ(mine[0], both);
    }
  });
}

// Between neighbours in the tree of nodes, a step is one message up and one down for any number of tensors. If a rank
// is suspended while it announces its submissions, the step may take one more message.
TEST(Runtime, sends_at_most_three_messages_per_node_and_step_and_none_while_idle) {
  for (const std::vector<int>& shape : {std::vector{2, 2}, {1, 2, 1}, {1, 1, 1, 1, 1}}) {
    Ensemble ensemble(testing::made_up_world(shape));
    std::atomic<std::int64_t> sent{0}, received{0}, while_idle{0};
    constexpr int steps = 40, ops = 200;
    with_runtimes(ensemble, [&](Rig& rig, int rank) {
      const Counters& counters = rig.runtime->counters();
      std::vector<std::vector<float>> data(ops, parts(rank, 10));
      std::vector<Rig::Use> uses;
      for (std::size_t op = 0; op < data.size(); ++op)
        uses.push_back({Rig::floats(10), "gradient" + std::to_string(op), data[op].data(), data[op].data()});
      auto step = [&] {
        auto handle = rig.start(uses);
        ASSERT_TRUE(handle) << handle.error().message;
        EXPECT_EQ(rig.finish(*handle), "");
      };
      for (int i = 0; i < 3; ++i) step();
      std::int64_t sent_before = counters.frames_sent.get(), received_before = counters.frames_received.get();
      for (int i = 0; i < steps; ++i) step();
      std::int64_t sent_then = counters.frames_sent.get();
      sent += sent_then - sent_before;
      received += counters.frames_received.get() - received_before;
      // A slow rank sends nothing either. Therefore no choice of this duration can make the test fail without a bug.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      while_idle += counters.frames_sent.get() - sent_then;
      step();  // no rank shuts down while another still counts
    });
    auto nodes = static_cast<std::int64_t>(shape.size());
    EXPECT_GE(sent.load(), 2 * (nodes - 1) * steps);
    EXPECT_LE(sent.load(), 3 * nodes * steps);
    EXPECT_GE(received.load(), 2 * (nodes - 1) * steps - nodes);
    EXPECT_EQ(while_idle.load(), 0);
  }
}

TEST_P(ThreeRanks, survives_changing_signatures_in_random_order) {
  constexpr int ranks = 3;
  for (unsigned seed = 0; seed < (testing::is_sanitized ? 8 : 20); ++seed) {
    Ensemble ensemble(testing::made_up_world(GetParam()));
    ensemble.config.cache_capacity = seed % 3 == 0 ? 0 : 3;
    with_runtimes(ensemble, [&](Rig& rig, int rank) {
      std::mt19937 shapes(seed), order(seed * 31 + static_cast<unsigned>(rank));
      for (int round = 0; round < 30; ++round) {
        std::vector<std::vector<float>> data;
        for (int op = 0; op < 6; ++op) data.push_back(parts(rank, shapes() % 4 + 1));
        std::vector<std::size_t> sequence{0, 1, 2, 3, 4, 5};
        std::shuffle(sequence.begin(), sequence.end(), order);
        std::vector<Handles::Number> handles;
        for (std::size_t op : sequence) {
          auto handle = rig.start({{Rig::floats(static_cast<std::int64_t>(data[op].size())), "op" + std::to_string(op),
                                    data[op].data(), data[op].data()}});
          ASSERT_TRUE(handle) << handle.error().message;
          handles.push_back(*handle);
        }
        for (auto handle : handles) EXPECT_EQ(rig.finish(handle), "") << "seed " << seed << " round " << round;
        for (const auto& it : data) EXPECT_EQ(it, sums(ranks, it.size()));
      }
    });
  }
}

TEST_P(ThreeRanks, gathers_rows_of_different_numbers) {
  constexpr int ranks = 3;
  Ensemble ensemble(testing::made_up_world(GetParam()));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    for (int round = 0; round < 4; ++round) {
      // Rank r gives (r + round) % 3 rows of two elements.
      auto rows_of = [&](int r) { return (r + round) % 3; };
      std::vector<std::int64_t> mine;
      for (int row = 0; row < rows_of(rank); ++row) mine.insert(mine.end(), {rank * 100 + row, round});
      Signature signature;
      signature.verb = Verb::allgather;
      signature.dtype = DataType::i64;
      signature.shape = {0, 2};
      auto handle = rig.start({{signature, "gather", mine.data(), nullptr, rows_of(rank)}});
      ASSERT_TRUE(handle) << handle.error().message;
      HandleCell* cell = rig.runtime->find(*handle);
      ASSERT_TRUE(rig.runtime->wait(*cell, Deadline::after(start_time)));
      std::vector<std::int64_t> expected;
      for (int r = 0; r < ranks; ++r)
        for (int row = 0; row < rows_of(r); ++row) expected.insert(expected.end(), {r * 100 + row, round});
      ASSERT_EQ(cell->results.size(), 1u);
      EXPECT_EQ(cell->results[0].shape, (std::vector<std::int64_t>{static_cast<std::int64_t>(expected.size()) / 2, 2}));
      EXPECT_EQ(std::memcmp(cell->results[0].data.data(), expected.data(), cell->results[0].bytes), 0);
      rig.finish(*handle);
    }
  });
}

TEST_P(ThreeRanks, broadcasts_from_any_root_and_barriers) {
  Ensemble ensemble(testing::made_up_world(GetParam()));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    for (int root = 0; root < 3; ++root) {
      auto data = parts(rank, 100);
      Signature signature = Rig::floats(100);
      signature.verb = Verb::broadcast;
      signature.root = Rank{root};
      auto handle = rig.start({{signature, "b" + std::to_string(root), data.data(), data.data()}});
      ASSERT_TRUE(handle);
      EXPECT_EQ(rig.finish(*handle), "");
      EXPECT_EQ(data, parts(root, 100));
      Signature barrier;
      barrier.verb = Verb::barrier;
      auto met = rig.start({{barrier, "barrier"}});
      ASSERT_TRUE(met);
      EXPECT_EQ(rig.finish(*met), "");
    }
  });
}

// Only one rank notices the loss. All others, also on other nodes, must get an error with the same words.
TEST(Runtime, starts_again_in_the_same_process) {
  Ensemble ensemble(testing::made_up_world({2}));
  for (std::uint32_t epoch = 0; epoch < 20; ++epoch) {
    ensemble.world.epoch = epoch;
    with_runtimes(ensemble, [&](Rig& rig, int rank) {
      auto data = parts(rank, 7);
      EXPECT_EQ(rig.allreduce("a", data), "");
      EXPECT_EQ(data, sums(2, 7));
    });
  }
}

TEST(Runtime, reduces_in_shared_memory_in_place_and_packs_when_a_rank_has_left_it) {
  constexpr std::size_t first = 30'000, second = 70'001;
  for (int ranks : {1, 2, 3}) {
    Ensemble ensemble(testing::made_up_world({ranks}));
    with_runtimes(ensemble, [&](Rig& rig, int rank) {
      auto memory = rig.runtime->allocate_shared((first + second) * sizeof(float));
      ASSERT_TRUE(memory) << memory.error().message;
      auto* views = static_cast<float*>(*memory);
      for (int round = 0; round < 3; ++round) {
        std::vector<float> moved(second);
        // In the second round the last rank's tensor is in other memory. All ranks must notice that.
        float* tensor = round == 1 && rank == ranks - 1 ? moved.data() : views + first;
        for (std::size_t i = 0; i < first; ++i) views[i] = part(rank, i);
        for (std::size_t i = 0; i < second; ++i) tensor[i] = part(rank, i);
        auto handle =
            rig.start({{Rig::floats(first), "first", views, views}, {Rig::floats(second), "second", tensor, tensor}});
        ASSERT_TRUE(handle) << handle.error().message;
        EXPECT_EQ(rig.finish(*handle), "");
        EXPECT_EQ(std::vector<float>(views, views + first), sums(ranks, first)) << "round " << round;
        EXPECT_EQ(std::vector<float>(tensor, tensor + second), sums(ranks, second)) << "round " << round;
      }
      auto freed = rig.runtime->free_shared(views);
      EXPECT_TRUE(freed);
      EXPECT_FALSE(rig.runtime->free_shared(views));
    });
  }
}

// The row of the first tensor is rank 0's, so that the others' shares of the second one come earlier than rank 0's.
TEST_P(ThreeRanks, get_their_shares_of_several_tensors_in_place) {
  constexpr std::int64_t width = 300'000;
  Ensemble ensemble(testing::made_up_world(GetParam()));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    for (int round = 0; round < 2; ++round) {
      auto first = parts(rank, width), second = parts(rank, 3 * width);
      auto rows = [&](std::int64_t count) {
        Signature signature;
        signature.verb = Verb::reduce_scatter;
        signature.shape = {count, width};
        return signature;
      };
      auto handle = rig.start(
          {{rows(1), "first", first.data(), first.data()}, {rows(3), "second", second.data(), second.data()}});
      ASSERT_TRUE(handle) << handle.error().message;
      EXPECT_EQ(rig.finish(*handle), "");
      const std::vector<float> all = sums(3, 3 * width);
      if (rank == 0) {
        EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
      }
      EXPECT_TRUE(std::equal(second.begin(), second.begin() + width, all.begin() + rank * width)) << "rank " << rank;
    }
  });
}

// Records the calls that it gets.
class Recorder final : public Observer {
 public:
  std::vector<std::string> events;
  void submitted(const Operation& operation) override { add("submitted", operation.entry->name); }
  void ready(ProcessSetId, std::string_view name, Rank) override { add("ready", name); }
  void agreed(const Operation& operation, Sequence) override { add("agreed", operation.entry->name); }
  void started(Sequence, std::string_view, std::string_view) override { events.push_back("started"); }
  void finished(const Operation& operation, Sequence) override { add("finished", operation.entry->name); }
  void failed(const Operation& operation, const Error&) override { add("failed", operation.entry->name); }

 private:
  void add(const char* what, std::string_view name) { events.push_back(std::string(what) + " " + std::string(name)); }
};

TEST(Runtime, tells_observers_the_life_of_an_op_in_order) {
  Ensemble ensemble(testing::made_up_world({2}));
  run_ranks(ensemble, [&](RankThread& thread) {
    Recorder recorder;
    {
      Rig rig(ensemble, thread, {&recorder});
      ASSERT_TRUE(rig.runtime);
      auto data = parts(thread.rank().value, 4);
      EXPECT_EQ(rig.allreduce("a", data), "");
      EXPECT_EQ(rig.allreduce("a", data), "");
    }
    std::vector<std::string> expected{"submitted a", "agreed a", "started", "finished a",
                                      "submitted a", "agreed a", "started", "finished a"};
    std::erase(recorder.events, "ready a");  // only on the leader, and only for ballots
    EXPECT_EQ(recorder.events, expected);
  });
}

}  // namespace
}  // namespace hvd::runtime
