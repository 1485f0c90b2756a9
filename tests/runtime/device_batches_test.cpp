// Whole runtimes whose tensors are in the memory of a late device. The tensors are staged through the host, or a
// transport carries them directly.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device_rig.hpp"
#include "runtime/observers/trace_events.hpp"

namespace hvd::runtime {
namespace {

using hvd::testing::made_up_world;
using hvd::testing::take_launches;
using namespace rigs;

// How the tensors are carried, and the shape of the world.
struct Way {
  std::string name;
  std::vector<int> shape;
  bool is_direct = false, has_net = false, is_direct_in_nodes = false;
  int ranks() const { return std::accumulate(shape.begin(), shape.end(), 0); }
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
};

class DeviceBatches : public ::testing::TestWithParam<Way> {
 protected:
  void run(const std::function<void(DeviceRig&, int rank)>& program) {
    Ensemble ensemble(made_up_world(GetParam().shape));
    ensemble.config.network_interfaces = "lo";
    if (GetParam().is_direct_in_nodes) ensemble.config.hierarchical_allreduce = "1";
    with_devices(ensemble, GetParam().is_direct, program, GetParam().has_net, false, [](Runtime::Parts& parts) {
      if (GetParam().is_direct_in_nodes) parts.transports = {hvd::testing::direct_in_nodes};
    });
  }
  int ranks() const { return GetParam().ranks(); }
};
INSTANTIATE_TEST_SUITE_P(of, DeviceBatches,
                         ::testing::Values(Way{"one_rank", {1}}, Way{"staged_over_shm", {3}}, Way{"direct", {3}, true},
                                           Way{"staged_over_tcp", {1, 1, 1}, false, true},
                                           Way{"staged_over_tcp_and_shm", {2, 1}, false, true},
                                           Way{"staged_over_two_rails", {2, 2}, false, true},
                                           Way{"hierarchical", {2, 2}, false, true, true}),
                         [](const auto& way) { return way.param.name; });

TEST_P(DeviceBatches, reduce_in_place_and_out_of_place_with_a_stream_and_without) {
  run([&](DeviceRig& rig, int rank) {
    for (std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, std::size_t{300'000}})
      for (bool has_stream : {true, false})
        for (bool in_place : {true, false}) {
          devices::Memory in = rig.upload(part_of(rank, count)), out = rig.upload(std::vector<float>(count));
          if (!has_stream) devices::finish(*rig.device, rig.stream);
          void* output = in_place ? in.data() : out.data();
          DeviceRig::Use use{"sum" + std::to_string(count),
                             Verb::allreduce,
                             {static_cast<std::int64_t>(count)},
                             in.data(),
                             output,
                             has_stream};
          EXPECT_EQ(rig.run(use), "");
          EXPECT_EQ(rig.read(output, count), sum_of(ranks(), count));
          if (!in_place) {
            EXPECT_EQ(rig.read(in.data(), count), part_of(rank, count));
          }
        }
  });
}

TEST_P(DeviceBatches, of_every_verb_give_their_results_where_the_input_lies) {
  run([&](DeviceRig& rig, int rank) {
    const int size = ranks();
    for (int round = 0; round < 3; ++round)
      for (bool has_stream : {true, false}) {
        auto keep = [&](const char* name, Verb verb, std::vector<std::int64_t> shape, const std::vector<float>& values,
                        const std::vector<float>& expected) {
          devices::Memory in = rig.upload(values);
          devices::finish(*rig.device, rig.stream);
          auto handle = rig.start({{name, verb, std::move(shape), in.data(), nullptr, has_stream}});
          ASSERT_TRUE(handle) << handle.error().message;
          EXPECT_EQ(rig.wait(*handle), "") << name;
          KeptResult& result = rig.cell(*handle).results.at(0);
          EXPECT_EQ(result.device, DeviceKind::cuda);
          EXPECT_EQ(result.bytes, expected.size() * sizeof(float));
          devices::Memory taken = std::move(result.data);
          rig.finish(*handle);
          EXPECT_EQ(rig.read(taken.data(), expected.size()), expected) << name;
        };
        const auto each = static_cast<float>(round);
        // Rank r gives r + 1 rows of two elements.
        std::vector<float> gathered;
        for (int from = 0; from < size; ++from)
          gathered.insert(gathered.end(), 2 * static_cast<std::size_t>(from + 1), each + static_cast<float>(from));
        keep("gather", Verb::allgather, {rank + 1, 2},
             std::vector<float>(2 * static_cast<std::size_t>(rank + 1), each + static_cast<float>(rank)), gathered);
        // Each rank gets one row from every rank.
        std::vector<float> rows(static_cast<std::size_t>(size)), columns;
        for (int to = 0; to < size; ++to) {
          rows[static_cast<std::size_t>(to)] = each + static_cast<float>(10 * rank + to);
          columns.push_back(each + static_cast<float>(10 * to + rank));
        }
        keep("exchange", Verb::alltoall, {size}, rows, columns);
        std::vector<float> shares{static_cast<float>(size) * each * 2};
        keep("share", Verb::reduce_scatter, {size}, std::vector<float>(rows.size(), 2 * each), shares);

        devices::Memory data = rig.upload({each, static_cast<float>(rank)});
        devices::finish(*rig.device, rig.stream);
        EXPECT_EQ(rig.run({"root", Verb::broadcast, {2}, data.data(), data.data(), has_stream}), "");
        EXPECT_EQ(rig.read(data.data(), 2), (std::vector<float>{each, 0}));
        EXPECT_EQ(rig.run({"barrier", Verb::barrier, {}, nullptr, nullptr, false, DeviceKind::host}), "");
      }
  });
}

TEST_P(DeviceBatches, read_what_a_late_producer_writes_and_are_read_by_the_next_on_the_stream) {
  run([&](DeviceRig& rig, int rank) {
    for (int round = 0; round < 10; ++round) {
      rig.device->hold(rig.stream);
      devices::Memory data = rig.upload(part_of(rank, 5000));  // replaces the memory while its tensor is being reduced
      auto handle = rig.start({{"sum", Verb::allreduce, {5000}, data.data(), data.data()}});
      ASSERT_TRUE(handle) << handle.error().message;
      rig.device->let_go(rig.stream);
      EXPECT_EQ(rig.finish(*handle), "");
      EXPECT_EQ(rig.read(data.data(), 5000), sum_of(ranks(), 5000));
    }
  });
}

TEST_P(DeviceBatches, may_be_given_back_on_the_stream_as_soon_as_the_handle_is_done) {
  run([&](DeviceRig& rig, int rank) {
    std::vector<std::vector<float>> results(20);
    for (std::vector<float>& result : results) {
      devices::Memory in = rig.upload(part_of(rank, 3000)), out = rig.upload(std::vector<float>(3000));
      EXPECT_EQ(rig.run({"sum", Verb::allreduce, {3000}, in.data(), out.data()}), "");
      in = {};
      result.resize(3000);
      const std::size_t bytes = result.size() * sizeof(float);
      rig.device->launch(
          rig.stream, {{{out.data(), bytes}}, {{result.data(), bytes}}},
          [&result, bytes, from = LateDevice::seen(out.data())] { std::memcpy(result.data(), from, bytes); });
    }
    devices::finish(*rig.device, rig.stream);
    for (const std::vector<float>& result : results) EXPECT_EQ(result, sum_of(ranks(), 3000));
  });
}

TEST_P(DeviceBatches, plan_nothing_and_send_no_strings_once_they_repeat) {
  run([&](DeviceRig& rig, int rank) {
    // Every step gathers another number of rows from each rank.
    auto step = [&, number = 0]() mutable {
      std::vector<devices::Memory> data;
      std::vector<DeviceRig::Use> uses;
      const std::int64_t rows = (number++ + 2 * rank) % 5;
      data.push_back(rig.upload(part_of(rank, 5 * 7)));
      uses.push_back({"rows", Verb::allgather, {rows, 7}, data.back().data(), nullptr});
      for (int i = 0; i < 20; ++i) {
        data.push_back(rig.upload(part_of(rank, 100)));
        uses.push_back(
            {"gradient" + std::to_string(i), Verb::allreduce, {100}, data.back().data(), data.back().data()});
      }
      auto handle = rig.start(uses);
      ASSERT_TRUE(handle);
      EXPECT_EQ(rig.finish(*handle), "");
      EXPECT_EQ(rig.read(data.back().data(), 100), sum_of(ranks(), 100));
    };
    step();
    step();
    auto requests = rig.runtime->counters().requests_sent.get(), plans = rig.runtime->counters().plans.get();
    for (int i = 0; i < 10; ++i) step();
    EXPECT_EQ(rig.runtime->counters().requests_sent.get(), requests);
    EXPECT_EQ(rig.runtime->counters().plans.get(), plans);
  });
}

TEST_P(DeviceBatches, run_beside_those_of_the_host) {
  run([&](DeviceRig& rig, int rank) {
    for (int round = 0; round < 20; ++round) {
      devices::Memory data = rig.upload(part_of(rank, 2000));
      std::vector<float> host = part_of(rank, 2000);
      auto on_device = rig.start({{"device", Verb::allreduce, {2000}, data.data(), data.data()}});
      auto on_host = rig.start({{"host", Verb::allreduce, {2000}, host.data(), host.data(), false, DeviceKind::host}});
      ASSERT_TRUE(on_device && on_host);
      EXPECT_EQ(rig.finish(*on_host), "");
      EXPECT_EQ(rig.finish(*on_device), "");
      EXPECT_EQ(host, sum_of(ranks(), 2000));
      EXPECT_EQ(rig.read(data.data(), 2000), host);
    }
  });
}

TEST(DeviceBatch, that_is_issued_is_over_for_the_host_before_its_tensors_are_even_written) {
  Ensemble ensemble(made_up_world({2}));
  std::barrier all_issued(2);
  with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
    rig.device->hold(rig.stream);
    devices::Memory first = rig.upload(part_of(rank, 100)), second = rig.upload(part_of(rank, 200));
    // Started one after the other, so that they are two batches.
    EXPECT_EQ(rig.run({"first", Verb::allreduce, {100}, first.data(), first.data()}), "");
    EXPECT_EQ(rig.run({"second", Verb::allreduce, {200}, second.data(), second.data()}), "");
    EXPECT_EQ(rig.run({"first", Verb::allreduce, {100}, first.data(), first.data()}), "");
    for (const LateDevice::Entry& entry : rig.device->log())
      EXPECT_EQ(entry.when, LateDevice::Entry::When::queued) << "the stream is held";
    all_issued.arrive_and_wait();
    rig.device->let_go(rig.stream);
    std::vector<float> twice = sum_of(2, 100);
    for (float& value : twice) value *= 2;
    EXPECT_EQ(rig.read(first.data(), 100), twice);
    EXPECT_EQ(rig.read(second.data(), 200), sum_of(2, 200));
  });
}

// All gradients of a backward pass but the first are ready while the device is busy.
TEST(DeviceBatch, takes_what_gets_ready_while_the_device_is_busy_and_begins_when_a_program_waits) {
  Ensemble ensemble(made_up_world({2}));
  ensemble.config.cycle_time_ms = 1e9;  // no clock helps
  std::barrier all_did(2);
  with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
    std::vector<devices::Memory> data;
    for (int i = 0; i < 20; ++i) data.push_back(rig.upload(part_of(rank, 100)));
    auto start = [&](int i) {
      const DeviceRig::Use use{"gradient" + std::to_string(i),
                               Verb::allreduce,
                               {100},
                               data[static_cast<std::size_t>(i)].data(),
                               data[static_cast<std::size_t>(i)].data()};
      auto handle = rig.start({use});
      EXPECT_TRUE(handle);
      return *handle;
    };
    rig.device->hold(rig.stream);
    std::vector<Handles::Number> handles{start(0)};
    EXPECT_TRUE(rig.wait_until_done(handles[0])) << "issued, since the device had nothing to do";
    for (int i = 1; i < 20; ++i) handles.push_back(start(i));
    // What was submitted before is ready on all ranks when this is over.
    EXPECT_EQ(rig.run({"all ready", Verb::barrier, {}, nullptr, nullptr, false, DeviceKind::host}), "");
    EXPECT_FALSE(rig.is_done(handles.back()));
    const auto before = rig.runtime->counters().batches.get();
    all_did.arrive_and_wait();
    for (Handles::Number handle : handles) EXPECT_EQ(rig.wait(handle), "") << "the stream is held, and nobody hangs";
    EXPECT_EQ(rig.runtime->counters().batches.get(), before + 1);
    all_did.arrive_and_wait();
    rig.device->let_go(rig.stream);
    for (Handles::Number handle : handles) rig.runtime->release(rig.cell(handle));
    for (const devices::Memory& memory : data) EXPECT_EQ(rig.read(memory.data(), 100), sum_of(2, 100));
  });
}

TEST(DeviceBatch, that_waits_for_company_begins_when_the_device_gets_idle) {
  Ensemble ensemble(made_up_world({2}));
  ensemble.config.cycle_time_ms = 1e9;
  with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
    devices::Memory first = rig.upload(part_of(rank, 100)), second = rig.upload(part_of(rank, 100));
    rig.device->hold(rig.stream);
    EXPECT_EQ(rig.run({"first", Verb::allreduce, {100}, first.data(), first.data()}), "");
    auto handle = rig.start({{"second", Verb::allreduce, {100}, second.data(), second.data()}});
    ASSERT_TRUE(handle);
    rig.device->let_go(rig.stream);
    while (!rig.is_done(*handle)) std::this_thread::yield();  // a look is no wait
    EXPECT_EQ(rig.finish(*handle), "");
    EXPECT_EQ(rig.read(second.data(), 100), sum_of(2, 100));
  });
}

TEST(DeviceBatch, lets_no_stream_wait_before_the_program_waits) {
  Ensemble ensemble(made_up_world({2}));
  std::barrier all_overlapped(2);
  with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
    auto producer = rig.device->stream().value();
    const std::vector<float> mine = part_of(rank, 100);
    devices::Memory data = rig.upload(mine), other = rig.upload({1});
    devices::finish(*rig.device, rig.stream);
    // The collective cannot begin on rank 1, so it cannot end anywhere.
    if (rank == 1) rig.device->hold({producer.get()});
    const Stream own = std::exchange(rig.stream, {producer.get()});
    auto handle = rig.start({{"sum", Verb::allreduce, {100}, data.data(), data.data()}});
    rig.stream = own;
    ASSERT_TRUE(handle) << handle.error().message;
    EXPECT_TRUE(rig.wait_until_done(*handle));
    if (rank == 0) {
      // The program's own work is done meanwhile, also on the stream of the start.
      devices::finish(*rig.device, {producer.get()});
      EXPECT_EQ(rig.read(other.data(), 1), (std::vector<float>{1}));
    }
    all_overlapped.arrive_and_wait();
    EXPECT_TRUE(rig.runtime->order(rig.cell(*handle), rig.stream));
    if (rank == 1) rig.device->let_go({producer.get()});
    EXPECT_EQ(rig.read(data.data(), 100), sum_of(2, 100)) << "the other stream waits";
    EXPECT_EQ(rig.finish(*handle), "");
    devices::finish(*rig.device, {producer.get()});
  });
}

// The handle is released when it is done, or before, and nobody has waited.
TEST(DeviceBatch, keeps_a_result_that_nobody_waited_for_until_the_device_has_written_it) {
  for (bool is_done : {true, false}) {
    Ensemble ensemble(made_up_world({2}));
    std::barrier all_dropped(2);
    with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
      devices::Memory data = rig.upload(part_of(rank, 100));
      const std::size_t before = rig.device->allocations();
      rig.device->hold(rig.stream);
      auto handle = rig.start({{"gather", Verb::allgather, {100}, data.data(), nullptr}});
      ASSERT_TRUE(handle) << handle.error().message;
      if (is_done) {
        EXPECT_TRUE(rig.wait_until_done(*handle));
      }
      rig.runtime->release(rig.cell(*handle));
      // Everything after the gather is in the same lane, so the gather has been issued when this one is done.
      devices::Memory next = rig.upload(part_of(rank, 100));
      EXPECT_EQ(rig.run({"sum", Verb::allreduce, {100}, next.data(), next.data()}), "");
      EXPECT_GT(rig.device->allocations(), before + 1) << "the result was freed while the device writes it";
      all_dropped.arrive_and_wait();
      rig.device->let_go(rig.stream);
      EXPECT_EQ(rig.read(next.data(), 100), sum_of(2, 100));
      next = {};
      while (rig.device->allocations() > before) std::this_thread::yield();  // freed without another operation
    });
  }
}

TEST(DeviceBatch, without_a_stream_is_over_when_its_data_is_there) {
  Ensemble ensemble(made_up_world({2}));
  with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
    devices::Memory late = rig.upload(part_of(rank, 100)), data = rig.upload(part_of(rank, 100));
    devices::finish(*rig.device, rig.stream);
    rig.device->hold(rig.stream);
    // This batch waits for the stream: it is issued but not finished. The next one is queued behind it.
    EXPECT_EQ(rig.run({"late", Verb::allreduce, {100}, late.data(), late.data()}), "");
    auto handle = rig.start({{"no stream", Verb::allreduce, {100}, data.data(), data.data(), false}});
    ASSERT_TRUE(handle);
    EXPECT_EQ(rig.run({"after it", Verb::allreduce, {100}, late.data(), late.data()}), "");
    EXPECT_FALSE(rig.is_done(*handle));
    rig.device->let_go(rig.stream);
    EXPECT_EQ(rig.finish(*handle), "");
  });
}

TEST(DeviceBatch, that_is_staged_copies_chunks_out_while_others_travel) {
  Ensemble ensemble(made_up_world({2}));
  with_devices(ensemble, false, [&](DeviceRig& rig, int rank) {
    constexpr std::size_t count = 1'000'000;  // the tensor travels in eight chunks
    devices::Memory data = rig.upload(part_of(rank, count));
    EXPECT_EQ(rig.run({"long", Verb::allreduce, {count}, data.data(), data.data()}), "");
    int out = 0, back = 0;
    for (const LateDevice::Entry& entry : rig.device->log()) {
      if (entry.when != LateDevice::Entry::When::queued) continue;
      if (entry.what == LateDevice::Entry::What::to_host) ++out;
      if (entry.what != LateDevice::Entry::What::to_device) continue;
      ++back;
      if (back == 1) {
        EXPECT_EQ(out, 3) << "the next chunks are under way when the first one comes back";
      }
      EXPECT_LE(out, back + 2) << "there are three slots";
    }
    EXPECT_EQ(out, 8);
    EXPECT_EQ(back, 8);
    EXPECT_EQ(rig.read(data.data(), count), sum_of(2, count));
  });
}

// The names of the stages of each part, as the timeline has them.
class Stages final : public Observer {
 public:
  std::map<int, std::vector<std::string>> parts;
  bool has_begun = false;
  std::atomic<bool> has_ended{false};
  bool wants_stages() const override { return true; }
  void stages_began(Sequence, std::string_view device, std::string_view name, Clock::time_point at) override {
    EXPECT_EQ(device, "cuda device 0");
    EXPECT_EQ(name, "a");
    EXPECT_FALSE(has_begun);
    has_begun = true;
    began_at_ = at;
  }
  void stage_ended(Sequence, const StageOnDevice& stage, Clock::time_point begin, Clock::time_point end) override {
    EXPECT_TRUE(has_begun && !has_ended);
    EXPECT_LE(began_at_, begin);
    EXPECT_LE(last_[stage.part], begin) << activity_of(stage);
    EXPECT_LE(begin, end) << activity_of(stage);
    last_[stage.part] = end;
    parts[stage.part].push_back(activity_of(stage));
  }
  void ended(Sequence) override { has_ended = true; }

 private:
  Clock::time_point began_at_{};
  std::map<int, Clock::time_point> last_;
};

TEST(DeviceBatch, tells_the_timeline_what_it_does_on_the_device_on_the_host_and_between_nodes) {
  using Names = std::vector<std::string>;
  struct Row {
    std::string name;
    std::vector<int> shape;
    bool has_links_in_nodes;
    Names stages;
  };
  const Names staged_over_shm{"MEMCPY_IN_HOST_BUFFER", "SHM_ALLREDUCE", "MEMCPY_OUT_HOST_BUFFER"};
  const Names hierarchical{"MEMCPY_IN_FUSION_BUFFER", "DIRECT_REDUCESCATTER",   "MEMCPY_IN_HOST_BUFFER",
                           "INPROC_ALLREDUCE",        "MEMCPY_OUT_HOST_BUFFER", "DIRECT_ALLGATHER",
                           "MEMCPY_OUT_FUSION_BUFFER"};
  for (const Row& row : {Row{"staged", {2}, false, staged_over_shm}, Row{"hierarchical", {2, 2}, true, hierarchical}}) {
    SCOPED_TRACE(row.name);
    Ensemble ensemble(made_up_world(row.shape));
    ensemble.config.network_interfaces = "lo";
    ensemble.config.hierarchical_allreduce = "1";
    const auto program = [&](DeviceRig& rig, int rank) {
      constexpr std::int64_t count = 600'000;  // the chunks of the hierarchy have at most 2 MiB
      devices::Memory data = rig.upload(part_of(rank, count));
      Stages stages;
      rig.runtime->observers().add(stages);
      EXPECT_EQ(rig.run({"a", Verb::allreduce, {count}, data.data(), data.data()}), "");
      devices::finish(*rig.device, rig.stream);
      while (!stages.has_ended) std::this_thread::yield();
      rig.runtime->observers().remove(stages);
      ASSERT_GE(stages.parts.size(), 2u);
      for (auto& [part, names] : stages.parts) {
        Names expected = row.stages;
        if (part == 0) expected.insert(expected.begin(), "WAIT_FOR_DATA");
        EXPECT_EQ(names, expected) << "part " << part;
      }
      EXPECT_EQ(rig.run({"b", Verb::allreduce, {count}, data.data(), data.data()}), "") << "with nobody who looks";
    };
    with_devices(ensemble, false, program, row.shape.size() > 1, false, [&](Runtime::Parts& parts) {
      if (row.has_links_in_nodes) parts.transports = {hvd::testing::direct_in_nodes};
    });
  }
}

TEST(DeviceBatch, that_fails_to_be_copied_fails_everybody_with_the_rank_and_the_reason) {
  for (int copies : {0, 1, 3, 9, 12}) {  // copies to the host, and copies back to the device
    Ensemble ensemble(made_up_world({3}));
    with_devices(ensemble, false, [&](DeviceRig& rig, int rank) {
      constexpr std::size_t count = 1'000'000;
      devices::Memory data = rig.upload(part_of(rank, count));
      devices::finish(*rig.device, rig.stream);
      if (rank == 1) rig.device->fail_move_after(copies);
      std::string text;
      // A batch that was already issued succeeds when a copy fails later. The next batch then reports the failure.
      for (int i = 0; i < 1000 && text.empty(); ++i)
        text = rig.run({"long", Verb::allreduce, {count}, data.data(), data.data(), false});
      EXPECT_NE(text.find("failed on the device"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    });
  }
}

// The survivor's stream never reaches its tensor. The survivor must learn of the loss nevertheless.
TEST(DeviceBatch, fails_when_a_peer_is_lost_though_its_producer_is_late) {
  for (bool is_direct : {false, true}) {
    Ensemble ensemble(made_up_world({2}));
    std::barrier have_started(2);
    with_devices(ensemble, is_direct, [&](DeviceRig& rig, int rank) {
      devices::Memory warm = rig.upload(part_of(rank, 100));
      EXPECT_EQ(rig.run({"warm", Verb::allreduce, {100}, warm.data(), warm.data()}), "");
      devices::finish(*rig.device, rig.stream);
      rig.device->hold(rig.stream);
      devices::Memory data = rig.upload(part_of(rank, 100'000)), out = rig.upload(part_of(7, 100'000));
      auto handle = rig.start({{"lost", Verb::allreduce, {100'000}, data.data(), out.data()}});
      ASSERT_TRUE(handle);
      have_started.arrive_and_wait();
      if (rank == 0) rig.runtime->report_lost(Rank{1});
      const std::string text = rig.finish(*handle);
      // With a direct transport the handle of an issued batch is already done. Then a later batch reports the loss. A
      // batch that starts before the engine notices the loss may still succeed.
      std::string later;
      for (int i = 0; i < 1000 && later.empty(); ++i)
        later = rig.run({"later", Verb::allreduce, {100}, warm.data(), warm.data()});
      EXPECT_NE((is_direct ? later : text).find("rank 1"), std::string::npos) << text << later;
      rig.runtime.reset();
      rig.device->let_go(rig.stream);
      if (!is_direct) {  // see device_deaths_test.cpp for the other results
        EXPECT_EQ(rig.read(out.data(), 100'000), part_of(7, 100'000)) << "written after the end";
      }
    });
  }
}

TEST(DeviceBatch, fails_by_name_where_a_rank_has_no_memory_for_its_result) {
  Ensemble ensemble(made_up_world({2}));
  with_devices(ensemble, false, [&](DeviceRig& rig, int rank) {
    devices::Memory data = rig.upload(part_of(rank, 10));
    EXPECT_EQ(rig.run({"gather", Verb::allgather, {10}, data.data(), nullptr}), "");
    if (rank == 1) rig.device->run_out_after(0);
    const std::string text = rig.run({"gather", Verb::allgather, {10}, data.data(), nullptr});
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    if (rank == 1) {
      EXPECT_NE(text.find("no memory left"), std::string::npos) << text;
    }
  });
}

TEST(DeviceBatch, is_refused_where_ranks_or_tensors_disagree_about_the_kind_of_memory) {
  Ensemble ensemble(made_up_world({2}));
  with_devices(ensemble, false, [&](DeviceRig& rig, int rank) {
    devices::Memory data = rig.upload(part_of(rank, 10));
    std::vector<float> host = part_of(rank, 10);
    DeviceRig::Use here{"a", Verb::allreduce, {10}, host.data(), host.data(), false, DeviceKind::host};
    DeviceRig::Use there{"a", Verb::allreduce, {10}, data.data(), data.data()};
    const std::string text = rig.run(rank == 0 ? here : there);
    EXPECT_NE(text.find("Mismatched devices for 'a'"), std::string::npos) << text;
    EXPECT_NE(text.find("cuda"), std::string::npos) << text;
    // Both tensors in one submission.
    there.name = "b";
    auto mixed = rig.start({here, there});
    ASSERT_FALSE(mixed);
    for (const char* word : {"'a'", "'b'", "host", "cuda"})
      EXPECT_NE(mixed.error().message.find(word), std::string::npos) << mixed.error().message;
    EXPECT_EQ(rig.run(here), "");
    EXPECT_EQ(rig.run(there), "");
    EXPECT_EQ(rig.read(data.data(), 10), host);
  });
}

TEST(DeviceBatch, takes_zeros_for_what_a_joined_rank_lacks) {
  Ensemble ensemble(made_up_world({3}));
  with_devices(ensemble, false, [&](DeviceRig& rig, int rank) {
    for (int round = 0; round < 2; ++round) {
      std::int32_t last = -1;
      if (rank > 0) {
        devices::Memory data = rig.upload(part_of(rank, 200'000));
        EXPECT_EQ(rig.run({"a", Verb::allreduce, {200'000}, data.data(), data.data()}), "");
        std::vector<float> expected = sum_of(3, 200'000), mine = part_of(0, 200'000);
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] -= mine[i];
        EXPECT_EQ(rig.read(data.data(), 200'000), expected);
      }
      EXPECT_EQ(rig.run({"join", Verb::join, {}, nullptr, &last, false, DeviceKind::host}), "");
      EXPECT_GE(last, 0);
    }
  });
}

// Leaves of one rank's launches those that the other has, too.
std::vector<std::string> common(const std::vector<std::string>& all, const std::vector<std::string>& other) {
  std::vector<std::string> kept;
  for (const std::string& launch : all)
    if (std::ranges::find(other, launch) != other.end()) kept.push_back(launch);
  return kept;
}

TEST(DeviceBatch, is_launched_in_one_order_on_all_ranks_whatever_sets_overlap) {
  const std::vector<std::vector<Rank>> sets{{Rank{0}, Rank{1}}, {Rank{1}, Rank{2}}, {Rank{0}, Rank{2}, Rank{3}}};
  Ensemble ensemble(made_up_world({4}));
  (void)take_launches();
  with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
    std::vector<int> numbers{0};
    for (const std::vector<Rank>& set : sets) numbers.push_back(rig.runtime->add_process_set(set).value());
    std::mt19937 random(static_cast<unsigned>(rank));
    std::vector<devices::Memory> data;
    for (int i = 0; i < 12; ++i) data.push_back(rig.upload(part_of(rank, 100)));
    for (int round = 0; round < 20; ++round) {
      std::vector<int> order(12);
      std::iota(order.begin(), order.end(), 0);
      std::ranges::shuffle(order, random);  // each rank has an order of its own
      std::vector<Handles::Number> handles;
      for (int i : order) {
        const auto at = static_cast<std::size_t>(i) % numbers.size();
        if (at > 0 && !std::ranges::binary_search(sets[at - 1], Rank{rank})) continue;
        void* tensor = data[static_cast<std::size_t>(i)].data();
        DeviceRig::Use use{"t" + std::to_string(i), Verb::broadcast, {100}, tensor, tensor};
        use.set = numbers[at];
        use.root = at == 0 ? Rank{0} : sets[at - 1].front();
        auto handle = rig.start({use});
        ASSERT_TRUE(handle) << handle.error().message;
        handles.push_back(*handle);
      }
      for (Handles::Number handle : handles) EXPECT_EQ(rig.finish(handle), "");
    }
    devices::finish(*rig.device, rig.stream);
  });
  const auto launches = take_launches();
  for (const auto& [rank, mine] : launches)
    for (const auto& [other, theirs] : launches)
      EXPECT_EQ(common(mine, theirs), common(theirs, mine)) << "ranks " << rank.value << " and " << other.value;
}

// Device links of all ranks, and of the node, are found out about in any case. Those of the host are the world's, the
// node's and the rail's.
TEST(DeviceBatch, makes_links_of_the_host_only_where_its_way_needs_them) {
  struct Row {
    const char* hierarchical;
    std::vector<int> shape;
    int links, links_with_sizes;
  };
  for (const Row& row : {Row{"0", {2, 2}, 2, 5}, Row{"1", {2, 2}, 5, 5}, Row{"", {2}, 1, 2}}) {
    Ensemble ensemble(made_up_world(row.shape));
    ensemble.config.network_interfaces = "lo";
    ensemble.config.hierarchical_allreduce = row.hierarchical;
    const int ranks = ensemble.world.size();
    with_devices(
        ensemble, true,
        [&](DeviceRig& rig, int rank) {
          const auto links = [&, before = rig.runtime->counters().links.get()] {
            return rig.runtime->counters().links.get() - before;
          };
          const auto values = part_of(rank, 1000);
          for (int batch = 0; batch < 2; ++batch) {
            auto memory = rig.upload(values);
            EXPECT_EQ(rig.run({"sum", Verb::allreduce, {1000}, memory.data(), memory.data()}), "");
            EXPECT_EQ(rig.read(memory.data(), 1000), sum_of(ranks, 1000)) << "batch " << batch;
            EXPECT_EQ(links(), row.links) << "batch " << batch << ", hierarchical: " << row.hierarchical;
          }
          auto memory = rig.upload(values);
          auto handle = rig.start({{"rows", Verb::allgather, {1000}, memory.data(), nullptr}});
          ASSERT_TRUE(handle);
          EXPECT_EQ(rig.finish(*handle), "");
          EXPECT_EQ(links(), row.links_with_sizes);
        },
        row.shape.size() > 1);
  }
}

TEST(DeviceBatch, runs_in_a_process_set_and_over_several_nodes) {
  for (const std::vector<int>& shape : {std::vector{3}, {2, 2}, {1, 1, 1}}) {
    Ensemble ensemble(made_up_world(shape));
    ensemble.config.network_interfaces = "lo";
    ensemble.config.hierarchical_allreduce = "1";
    std::barrier all_did(ensemble.world.size());  // a rank that leaves ends the job
    run_ranks(ensemble, [&](RankThread& thread) {
      auto device = std::make_shared<LateDevice>(5);
      auto stream = device->stream().value();
      Runtime::Parts parts;
      parts.net = ensemble.take_listener(thread.rank());
      parts.world = ensemble.world;
      parts.world.rank = thread.rank();
      parts.config = ensemble.config;
      parts.config.nccl = "0";
      parts.threads = ensemble.hub;
      parts.devices = {device};
      if (shape.size() == 1) parts.net.reset();
      else parts.transports = {hvd::testing::direct_in_nodes};
      auto runtime = Runtime::start(std::move(parts), Deadline::after(patience));
      ASSERT_TRUE(runtime) << runtime.error().message;
      auto set = (*runtime)->add_process_set({Rank{0}, Rank{2}});
      ASSERT_TRUE(set) << set.error().message;
      const int rank = thread.rank().value;
      for (int number : {0, *set}) {
        if (number != 0 && rank != 0 && rank != 2) continue;
        std::vector<float> expected = sum_of(ensemble.world.size(), 5000);
        if (number != 0)
          for (std::size_t i = 0; i < 5000; ++i) expected[i] = part_of(0, 5000)[i] + part_of(2, 5000)[i];
        const std::vector<float> mine = part_of(rank, 5000);
        devices::Memory data = device->upload({stream.get()}, mine.data(), 5000 * sizeof(float));
        Signature signature;
        signature.shape = {5000};
        signature.device = DeviceKind::cuda;
        auto operation = (*runtime)->prepare("a", signature, number);
        ASSERT_TRUE(operation);
        Start start{*operation, data.data(), data.data(), 0};
        start.stream = {stream.get()};
        auto handle = (*runtime)->submit({&start, 1});
        ASSERT_TRUE(handle);
        HandleCell& cell = *(*runtime)->find(*handle);
        EXPECT_TRUE((*runtime)->wait(cell, Deadline::after(patience)));
        EXPECT_TRUE((*runtime)->order(cell));
        EXPECT_EQ(cell.error, nullptr) << cell.error->message;
        (*runtime)->release(cell);
        auto bytes = device->download({stream.get()}, data.data(), 5000 * sizeof(float));
        EXPECT_EQ(std::memcmp(bytes.data(), expected.data(), bytes.size()), 0) << "in set " << number;
      }
      all_did.arrive_and_wait();
    });
  }
}

}  // namespace
}  // namespace hvd::runtime
