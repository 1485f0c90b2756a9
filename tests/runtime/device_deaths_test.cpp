// Losses, hangs and aborts while batches are on devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "device_rig.hpp"

namespace hvd::runtime {
namespace {

using hvd::testing::made_up_world;
using namespace rigs;

// Starts operations until one fails, and returns the error.
std::string first_error(DeviceRig& rig) {
  devices::Memory data = rig.upload({1});
  std::string text;
  for (int i = 0; i < 100'000 && text.empty(); ++i)
    text = rig.run({"until it fails", Verb::allreduce, {1}, data.data(), data.data()});
  return text;
}

// The program was told that all is well, since the batches were issued, and its stream goes on after the loss.
TEST(DeathOnDevices, leaves_no_number_in_results_that_are_incomplete) {
  Ensemble ensemble(made_up_world({2}));
  std::barrier all_issued(2), all_lost(2);
  with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
    auto producer = rig.device->stream().value();
    devices::Memory done = rig.upload(part_of(rank, 100)), input = rig.upload(part_of(rank, 100)),
                    output = rig.upload(part_of(7, 100)), in_place = rig.upload(part_of(rank, 100)),
                    root = rig.upload(part_of(rank, 100));
    EXPECT_EQ(rig.run({"done", Verb::allreduce, {100}, done.data(), done.data()}), "");
    devices::finish(*rig.device, rig.stream);
    if (rank == 1) rig.device->hold({producer.get()});  // so that nothing ends anywhere
    const Stream own = std::exchange(rig.stream, {producer.get()});
    std::vector<Handles::Number> handles;
    auto start = [&](const DeviceRig::Use& use) {
      auto handle = rig.start({use});
      ASSERT_TRUE(handle) << handle.error().message;
      EXPECT_TRUE(rig.wait_until_done(*handle));
      handles.push_back(*handle);
    };
    start({"out of place", Verb::allreduce, {100}, input.data(), output.data()});
    start({"in place", Verb::allreduce, {100}, in_place.data(), in_place.data()});
    start({"root", Verb::broadcast, {100}, root.data(), root.data()});
    start({"not waited for", Verb::allreduce, {100}, done.data(), done.data()});
    rig.stream = own;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(rig.runtime->order(rig.cell(handles[i]), rig.stream));
    all_issued.arrive_and_wait();
    if (rank == 0) rig.runtime->report_lost(Rank{1});
    const std::string error = first_error(rig);
    EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
    const std::string text = rig.wait(handles.back());
    for (const char* word : {"rank 1", "not complete"}) EXPECT_NE(text.find(word), std::string::npos) << text;
    all_lost.arrive_and_wait();
    if (rank == 1) rig.device->let_go({producer.get()});
    auto numbers = [&](const devices::Memory& memory) {
      return std::ranges::count_if(rig.read(memory.data(), 100), [](float value) { return value == value; });
    };
    EXPECT_EQ(numbers(output), 0);
    EXPECT_EQ(numbers(in_place), 0);
    EXPECT_EQ(rig.read(input.data(), 100), part_of(rank, 100)) << "nothing writes to an input";
    if (rank == 0) EXPECT_EQ(rig.read(root.data(), 100), part_of(0, 100)) << "nothing writes to a root's data";
    else EXPECT_EQ(numbers(root), 0);
    for (Handles::Number handle : handles) rig.runtime->release(rig.cell(handle));
    devices::finish(*rig.device, {producer.get()});
  });
}

// What is left of the work may still write to the memory.
void leave(devices::Memory memory) {
  static std::mutex mutex;
  static auto& left = *new std::vector<devices::Memory>;
  std::lock_guard lock(mutex);
  left.push_back(std::move(memory));
}

// Reports a loss when the first batch begins.
class Messenger final : public Observer {
 public:
  std::atomic<Runtime*> runtime{nullptr};
  void started(Sequence, std::string_view, std::string_view) override {
    if (Runtime* told = runtime.exchange(nullptr)) told->report_lost(Rank{1});
  }
};

// The batch has exchanged sizes and is on the device, where it does not end without the other rank.
TEST(DeathOnDevices, leaves_a_result_of_the_runtime_to_the_batch_until_that_has_ended) {
  Ensemble ensemble(made_up_world({2}));
  Messenger messenger;
  with_devices(
      ensemble, true,
      [&](DeviceRig& rig, int rank) {
        devices::Memory rows = rig.upload(part_of(rank, 100));
        if (rank == 0) messenger.runtime = rig.runtime.get();
        else rig.device->hold(rig.stream);
        auto handle = rig.start({{"rows", Verb::allgather, {4, 25}, rows.data(), nullptr}});
        ASSERT_TRUE(handle) << handle.error().message;
        EXPECT_NE(first_error(rig), "");
        const std::string error = rig.finish(*handle);
        EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
        if (rank == 1) rig.device->let_go(rig.stream);
        leave(std::move(rows));
        EXPECT_TRUE(rig.device->engine().sleep_until_idle(0));
      },
      false, true,
      [&](Runtime::Parts& parts) {
        if (parts.world.rank == Rank{0}) parts.observers = {&messenger};
      });
}

// What the job leaves on the device stays there, since a call may go on at any time. So the test looks at nothing else.
TEST(DeathOnDevices, names_a_device_that_does_not_let_go_and_the_rank_ends_all_the_same) {
  using Call = hvd::testing::Engine::Call;
  for (Call hangs : {Call::abort, Call::look_after_abort})
    for (bool is_staged_too : {false, true}) {
      Ensemble ensemble(made_up_world({2}));
      ensemble.config.peer_timeout_s = 0.1;
      std::barrier all_ready(2), all_told(2), all_ended(2);
      run_ranks(ensemble, [&](RankThread& thread) {
        DeviceRig rig(ensemble, thread, true, false);
        ASSERT_TRUE(rig.runtime);
        const int rank = thread.rank().value;
        devices::Memory data = rig.upload(part_of(rank, 100));
        EXPECT_EQ(rig.run({"links", Verb::allreduce, {100}, data.data(), data.data()}), "");
        // The first staged batch waits for links of the host, and until they are there it has nothing on the device.
        if (is_staged_too) {
          EXPECT_EQ(rig.run({"links of the host", Verb::adasum, {100}, data.data(), data.data()}), "");
        }
        rig.device->hold(rig.stream);
        if (is_staged_too) {  // adasum, which the link does not carry
          EXPECT_TRUE(rig.start({{"staged", Verb::adasum, {100}, data.data(), data.data()}}));
        } else {  // without a stream nobody but the runtime gets the end of a batch
          EXPECT_EQ(rig.run({"held", Verb::allreduce, {100}, data.data(), data.data()}), "");
          EXPECT_TRUE(rig.start({{"last", Verb::broadcast, {100}, data.data(), data.data(), false}}));
        }
        all_ready.arrive_and_wait();
        if (rank == 0) {
          // The engine has begun the last batch before it reads of the loss.
          while (rig.runtime->counters().batches.get() < 3u) std::this_thread::yield();
          rig.device->engine().hang(hangs);
          rig.runtime->report_lost(Rank{1});
          const std::string text = first_error(rig);
          for (const char* word : {"rank 1", "cuda device 0 did not let go"})
            EXPECT_NE(text.find(word), std::string::npos) << text;
        }
        all_told.arrive_and_wait();  // a rank that leaves ends the job
        rig.runtime.reset();
        all_ended.arrive_and_wait();
        leave(std::move(data));
        rig.device->let_go(rig.stream);
        for (Call call : {Call::abort, Call::look}) rig.device->engine().let_return(call);
      });
    }
}

// Nobody else gets the event of an operation without a stream. So its handle tells that the device is done with it,
// also when it fails.
TEST(DeathOnDevices, ends_an_operation_without_a_stream_when_the_device_is_done_with_it) {
  Ensemble ensemble(made_up_world({2}));
  ensemble.config.peer_timeout_s = 60;
  std::barrier all_issued(2), all_told(2);
  with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
    auto producer = rig.device->stream().value();
    devices::Memory held = rig.upload(part_of(rank, 100)), data = rig.upload(part_of(rank, 100));
    devices::finish(*rig.device, rig.stream);
    if (rank == 1) rig.device->hold({producer.get()});  // so that nothing ends anywhere
    const Stream own = std::exchange(rig.stream, {producer.get()});
    auto before = rig.start({{"held", Verb::allreduce, {100}, held.data(), held.data()}});
    rig.stream = own;
    ASSERT_TRUE(before) << before.error().message;
    EXPECT_TRUE(rig.wait_until_done(*before));
    auto handle = rig.start({{"no stream", Verb::broadcast, {100}, data.data(), data.data(), false}});
    ASSERT_TRUE(handle) << handle.error().message;
    while (rig.runtime->counters().batches.get() < 2u) std::this_thread::yield();
    all_issued.arrive_and_wait();
    if (rank == 0) {
      rig.runtime->report_lost(Rank{1});
      EXPECT_NE(rig.wait(*handle).find("rank 1"), std::string::npos);
    }
    all_told.arrive_and_wait();
    if (rank == 1) {
      rig.device->let_go({producer.get()});
      EXPECT_NE(rig.wait(*handle), "");
    }
    // The double reports a race here if the runtime has not seen the end of the batch.
    const std::vector<float> values = rig.read(data.data(), 100);
    if (rank == 0) {
      EXPECT_EQ(values, part_of(0, 100)) << "nothing writes to a root's data";
    }
    for (Handles::Number each : {*before, *handle}) rig.runtime->release(rig.cell(each));
  });
}

TEST(DeathOnDevices, is_near_for_a_job_whose_batch_never_ends_by_the_name_of_who_holds_it_up) {
  Ensemble ensemble(made_up_world({2}));
  ensemble.config.stall_check_time_s = 0;
  ensemble.config.stall_shutdown_time_s = 0.3;
  std::barrier all_ended(2);
  with_devices(ensemble, true, [&](DeviceRig& rig, int rank) {
    auto producer = rig.device->stream().value();
    devices::Memory data = rig.upload(part_of(rank, 100));
    devices::finish(*rig.device, rig.stream);
    if (rank == 1) rig.device->hold({producer.get()});
    const Stream own = std::exchange(rig.stream, {producer.get()});
    EXPECT_EQ(rig.run({"held", Verb::allreduce, {100}, data.data(), data.data()}), "") << "it is issued";
    rig.stream = own;
    // Nothing is in flight for the host, and the program may be asleep on its stream.
    while (!rig.runtime->ended()) std::this_thread::yield();
    const std::string text = first_error(rig);
    for (const char* word : {"'held'", "cuda device 0 of rank 1", "own work", "1!: [held]"})
      EXPECT_NE(text.find(word), std::string::npos) << text;
    if (rank == 0) {
      EXPECT_EQ(rig.runtime->ended()->id, "HVD2201");
    }
    all_ended.arrive_and_wait();
    if (rank == 1) rig.device->let_go({producer.get()});
    devices::finish(*rig.device, {producer.get()});
  });
}

}  // namespace
}  // namespace hvd::runtime
