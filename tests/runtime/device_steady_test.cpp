// What lanes of a device do in the steady state, on a device that itself allocates nothing.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "devices/host/host_moves.hpp"
#include "fixtures/counted_allocations/counted_allocations.hpp"
#include "ranks_as_threads.hpp"
#include "runtime/runtime.hpp"

namespace hvd::runtime {
namespace {

using testing::Ensemble;
using testing::RankThread;

// Its memory is the host's, and it does all work at once. Every event has come.
class PromptDevice final : public devices::Device {
 public:
  PromptDevice() : Device(DeviceKind::cuda, 0) {}

  Result<devices::Memory> allocate(std::size_t bytes, devices::Where, Stream) override {
    void* memory = std::malloc(bytes + 1);
    return devices::Memory(memory, memory, [](void* owner) { std::free(owner); });
  }
  Result<std::shared_ptr<void>> stream() override { return std::shared_ptr<void>(std::shared_ptr<void>(), this); }
  Status move(Stream, std::span<const devices::Move> moves, const devices::Treatment& treatment) override {
    return devices::move_on_host(moves, treatment);
  }
  Result<Event> record(Stream) override { return Event{last_token_.fetch_add(1) + 1}; }
  Status wait(Stream, Event) override { return {}; }
  Result<bool> query(Event, posix::WaitWord*) override { return true; }

 private:
  std::atomic<std::uint64_t> last_token_{0};
};

// A rank's operations on tensors that stay where they are.
class SteadyProgram {
 public:
  SteadyProgram(Runtime& runtime, Stream stream) : runtime_(runtime) {
    for (int i = 0; i < 20; ++i) {
      Signature signature;
      signature.verb = i < 18 ? Verb::allreduce : i == 18 ? Verb::broadcast : Verb::reduce_scatter;
      signature.shape = {i == 0 ? 300'000 : 100 + i};
      signature.device = DeviceKind::cuda;
      signature.postscale = i % 2 == 0 ? 1.0 : 0.5;
      inputs_.emplace_back(static_cast<std::size_t>(signature.shape[0]), 1.0f);
      outputs_.push_back(inputs_.back());
      auto operation = runtime.prepare("steady" + std::to_string(i), signature, 0);
      EXPECT_TRUE(operation);
      Start start{*operation, inputs_.back().data(), outputs_.back().data(), signature.shape[0]};
      start.stream = stream;
      starts_.push_back(start);
    }
  }
  void step() {
    auto handle = runtime_.submit(starts_);
    ASSERT_TRUE(handle);
    HandleCell& cell = *runtime_.find(*handle);
    EXPECT_TRUE(runtime_.wait(cell, Deadline::after(std::chrono::seconds(20))));
    EXPECT_TRUE(runtime_.order(cell));
    EXPECT_FALSE(cell.error);
    runtime_.release(cell);
  }

 private:
  Runtime& runtime_;
  std::vector<std::vector<float>> inputs_, outputs_;
  std::vector<Start> starts_;
};

// Batches differ with timing, and capacities grow until the largest batch fits. Therefore one window without anything
// new is enough.
TEST(DeviceLanes, allocate_nothing_and_plan_nothing_in_the_steady_state) {
  for (const std::vector<int>& shape : {std::vector{1}, {2}, {1, 1}}) {
    Ensemble ensemble(testing::made_up_world(shape));
    ensemble.config.network_interfaces = "lo";
    ensemble.config.hierarchical_allreduce = "1";  // between the two nodes
    std::barrier meeting(ensemble.world.size());
    std::size_t before = 0, allocations = 1;
    run_ranks(ensemble, [&](RankThread& thread) {
      Runtime::Parts parts;
      if (shape.size() > 1) parts.net = ensemble.take_listener(thread.rank());
      parts.world = ensemble.world;
      parts.world.rank = thread.rank();
      parts.config = ensemble.config;
      parts.config.nccl = "0";
      parts.threads = ensemble.hub;
      auto device = std::make_shared<PromptDevice>();
      parts.devices = {device};
      auto runtime = Runtime::start(std::move(parts), Deadline::after(std::chrono::seconds(20)));
      ASSERT_TRUE(runtime) << runtime.error().message;
      SteadyProgram program(**runtime, {device.get()});
      std::int64_t plans = 0, planned = 0, strings = 0, sent = 0;
      for (int window = 0; window < 20; ++window) {
        meeting.arrive_and_wait();
        if (window > 0 && allocations == 0) break;
        plans = (*runtime)->counters().plans.get();
        strings = (*runtime)->counters().requests_sent.get();
        if (thread.rank().value == 0) before = testing::counted_allocations_of_all_threads();
        meeting.arrive_and_wait();
        for (int step = 0; step < 30; ++step) program.step();
        meeting.arrive_and_wait();
        if (thread.rank().value == 0) allocations = testing::counted_allocations_of_all_threads() - before;
        planned = (*runtime)->counters().plans.get() - plans;
        sent = (*runtime)->counters().requests_sent.get() - strings;
      }
      EXPECT_EQ(allocations, 0u) << "on " << shape.size() << " nodes";
      EXPECT_EQ(planned, 0);
      EXPECT_EQ(sent, 0);
    });
  }
}

}  // namespace
}  // namespace hvd::runtime
