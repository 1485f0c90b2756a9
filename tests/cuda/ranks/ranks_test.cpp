// Ranks as threads whose tensors are on GPUs: the shipped plugin on the double of the driver, tensors staged through
// the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/current.hpp"
#include "api/horovod.h"
#include "api/runtime_of_c.hpp"
#include "devices/cuda/plugin.hpp"
#include "doubles/cuda/control.h"
#include "multiprocess/allreduce_of.hpp"
#include "native/cuda/owners.hpp"
#include "python/kernels/use.hpp"
#include "ranks_as_threads.hpp"

namespace hvd {
namespace {

using devices::Memory;
using devices::Move;
using devices::Where;
using testing::Ensemble;
using testing::RankThread;
using Floats = std::vector<float>;

constexpr auto patience = std::chrono::seconds(60);
constexpr int devices_of_double = 2;

// A kernel of a framework on its stream.
struct Kernel final : kernels::Use {
  struct Kept {
    void *data = nullptr, *owner = nullptr;
    void (*free_data)(void*) = nullptr;
    std::int64_t rows = -1;  // that came from the only rank
  };
  struct Outcome {
    kernels::Ending ending;
    std::vector<Kept> kept;
  };

  Kernel(void* of_framework, int device) : ordinal(device) { stream = of_framework; }
  void add(hvd_verb verb, std::size_t count, const void* in, void* out) {
    kernels::Member& member = members.emplace_back();
    member.name = "kernel's " + std::to_string(members.size());
    member.what.verb = verb;
    member.what.shape = {static_cast<std::int64_t>(count)};
    member.what.group = "kernel";
    member.what.device = HVD_CUDA;
    member.what.ordinal = ordinal;
    member.input = in;
    member.output = out;
  }
  void take(std::size_t member, const hvd_completion& it) override {
    EXPECT_EQ(it.index, member);
    if (members[member].output != nullptr) return;
    Kept& kept = found.kept.emplace_back();
    EXPECT_EQ(hvd_result_take(it.runtime, it.handle, it.index, &kept.data, &kept.owner, &kept.free_data, nullptr),
              HVD_OK)
        << hvd_last_error();
    EXPECT_EQ(hvd_result_splits(it.runtime, it.handle, it.index, &kept.rows, 1), HVD_OK) << hvd_last_error();
  }
  void end(const kernels::Ending& ending) override {
    found.ending = ending;
    outcome.set_value(std::move(found));
  }

  const int ordinal;
  Outcome found;
  std::promise<Outcome> outcome;
};

// A rank with its GPU, and the program's stream there.
class Program {
 public:
  Program(int rank, int size, std::shared_ptr<devices::Device> device)
      : rank_(rank),
        size_(size),
        device_(std::move(device)),
        driver_(*cuda::load_driver(HVD_CUDA_DOUBLE)),
        context_(*cuda::Context::open(driver_, device_->ordinal())),
        use_(*context_),
        own_(std::move(*cuda::make_stream(context_, 0))) {}

  void run_on(hvd_runtime* runtime) {
    runtime_ = runtime;
    for (int round = 0; round < 2; ++round) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{30'000}}) sum(count, round);
      gather(round);
    }
  }

  // A kernel of a framework sums two tensors, gathers a third and exchanges a fourth, and the framework goes on when
  // the kernel has ended. The inputs are late then.
  void run_kernel_on(hvd_runtime* runtime) {
    runtime_ = runtime;
    const Floats first(5, 3), second(30'000, 4), rows(7, 8), others(9, 10);
    const std::pair<const Floats*, hvd_verb> members[] = {
        {&first, HVD_ALLREDUCE}, {&second, HVD_ALLREDUCE}, {&rows, HVD_ALLGATHER}, {&others, HVD_ALLTOALL}};
    for (int round = 0; round < 3; ++round) {
      hvd_double_hold(own_.get());
      auto kernel = std::make_unique<Kernel>(own_.get(), device_->ordinal());
      std::vector<Memory> inputs, outputs;
      for (const auto& [values, verb] : members) {
        inputs.push_back(upload(*values));
        outputs.push_back(memory_of(values->size(), Where::on_device));
        kernel->add(verb, values->size(), inputs.back().data(),
                    verb == HVD_ALLREDUCE ? outputs.back().data() : nullptr);
      }
      std::future<Kernel::Outcome> later = kernel->outcome.get_future();
      kernels::submit(std::move(kernel));
      hvd_double_let_go(own_.get());
      Kernel::Outcome found = later.get();
      inputs.clear();
      ASSERT_EQ(found.ending.status, HVD_OK) << found.ending.message;
      EXPECT_TRUE(read(outputs[0].data(), 5) == first && read(outputs[1].data(), 30'000) == second);
      ASSERT_EQ(found.kept.size(), 2U);
      EXPECT_TRUE(read(found.kept[0].data, 7) == rows && read(found.kept[1].data, 9) == others);
      EXPECT_TRUE(found.kept[0].rows == 7 && found.kept[1].rows == 9);
      for (const Kernel::Kept& kept : found.kept) kept.free_data(kept.owner);
    }
  }

 private:
  Stream stream() const { return {own_.get()}; }
  Memory memory_of(std::size_t count, Where where) {
    auto memory = device_->allocate(count * sizeof(float), where, where == Where::on_device ? stream() : Stream{});
    EXPECT_TRUE(memory);
    return std::move(*memory);
  }
  void move(const void* from, void* to, std::size_t count) {
    const Move one{from, to, static_cast<std::int64_t>(count)};
    EXPECT_TRUE(device_->move(stream(), {&one, 1}, {DataType::f32, DataType::f32, 1.0}));
  }
  Memory upload(const Floats& values) {
    Memory pages = memory_of(values.size(), Where::on_host), memory = memory_of(values.size(), Where::on_device);
    if (!values.empty()) std::memcpy(pages.data(), values.data(), values.size() * sizeof(float));
    move(pages.data(), memory.data(), values.size());
    on_their_way_.push_back(std::move(pages));
    return memory;
  }
  // What is there when the program's stream has got here.
  Floats read(const void* data, std::size_t count) {
    Memory pages = memory_of(count, Where::on_host);
    move(data, pages.data(), count);
    EXPECT_EQ(driver_.stream_synchronize(own_.get()), cuda::Code::success);
    on_their_way_.clear();
    Floats values(count);
    if (count > 0) std::memcpy(values.data(), pages.data(), count * sizeof(float));
    return values;
  }

  hvd_handle start(const std::string& name, hvd_verb verb, std::size_t count, const void* in, void* out) {
    const auto rows = static_cast<std::int64_t>(count);
    hvd_op_description description = testing::allreduce_of(name.c_str(), rows, HVD_FLOAT32, HVD_SUM);
    description.verb = verb;
    description.device = HVD_CUDA;
    description.device_ordinal = device_->ordinal();
    hvd_op* op = nullptr;
    EXPECT_EQ(hvd_prepare(runtime_, &description, &op), HVD_OK) << hvd_last_error();
    hvd_start_arguments arguments = hvd_use_of(op, in, out);
    arguments.first_dimension = rows;
    arguments.stream = own_.get();
    hvd_handle handle = 0;
    EXPECT_EQ(hvd_start(runtime_, &arguments, 1, &handle), HVD_OK) << hvd_last_error();
    return handle;
  }

  // The input is late, and all memory is freed while work on it is under way.
  void sum(std::size_t count, int round) {
    hvd_double_hold(own_.get());
    Floats expected(count), mine(count);
    for (std::size_t i = 0; i < count; ++i) {
      mine[i] = static_cast<float>((rank_ + 1) * static_cast<int>(i % 13) + round);
      for (int rank = 0; rank < size_; ++rank)
        expected[i] += static_cast<float>((rank + 1) * static_cast<int>(i % 13) + round);
    }
    Memory in = upload(mine), out = memory_of(count, Where::on_device);
    const hvd_handle handle = start("sum " + std::to_string(count), HVD_ALLREDUCE, count, in.data(), out.data());
    hvd_double_let_go(own_.get());
    EXPECT_EQ(hvd_wait(runtime_, handle, -1), HVD_OK) << hvd_last_error();
    hvd_release(runtime_, handle);
    in = {};
    EXPECT_TRUE(read(out.data(), count) == expected) << "a wrong sum of " << count << " on rank " << rank_;
  }

  // The result is in memory of the runtime, which is freed at once.
  void gather(int round) {
    Floats expected;
    for (int rank = 0; rank < size_; ++rank)
      expected.insert(expected.end(), static_cast<std::size_t>(rank + 1), static_cast<float>(10 * round + rank));
    const auto rows = static_cast<std::size_t>(rank_ + 1);
    Memory in = upload(Floats(rows, static_cast<float>(10 * round + rank_)));
    const hvd_handle handle = start("gather", HVD_ALLGATHER, rows, in.data(), nullptr);
    EXPECT_EQ(hvd_wait(runtime_, handle, -1), HVD_OK) << hvd_last_error();
    void *data = nullptr, *owner = nullptr;
    void (*free_data)(void*) = nullptr;
    EXPECT_EQ(hvd_result_take(runtime_, handle, 0, &data, &owner, &free_data, nullptr), HVD_OK) << hvd_last_error();
    hvd_release(runtime_, handle);
    EXPECT_TRUE(read(data, expected.size()) == expected) << "rank " << rank_ << " has gathered something else";
    free_data(owner);
  }

  const int rank_, size_;
  const std::shared_ptr<devices::Device> device_;
  const cuda::Driver driver_;
  const std::shared_ptr<const cuda::Context> context_;
  const cuda::Context::Use use_;
  const cuda::OwnStream own_;
  hvd_runtime* runtime_ = nullptr;
  std::vector<Memory> on_their_way_;
};

class RanksOnGpus : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(of, RanksOnGpus,
                         ::testing::Values(std::vector<int>{1}, std::vector<int>{2}, std::vector<int>{4}),
                         [](const auto& shape) { return std::to_string(shape.param[0]) + "_ranks"; });

// Each rank runs the body with its program and its runtime.
void run_programs(const std::vector<int>& shape, const std::function<void(Program&, hvd_runtime*)>& body) {
  Environment environment;
  environment.set("HOROVOD_CUDA_DRIVER", HVD_CUDA_DOUBLE);
  auto plugin = posix::open_plugin<devices::cuda::Plugin>("cuda", environment);
  ASSERT_TRUE(plugin) << plugin.error().message;
  Ensemble ensemble(testing::made_up_world(shape));
  run_ranks(ensemble, [&](RankThread& thread) {
    const int rank = thread.rank().value;
    auto opened = (*plugin)->open(rank % devices_of_double, environment);
    ASSERT_TRUE(opened) << opened.error().message;
    std::shared_ptr<devices::Device> device = std::move(*opened);
    runtime::Runtime::Parts parts;
    parts.world = ensemble.world;
    parts.world.rank = thread.rank();
    parts.config = ensemble.config;
    parts.config.nccl = "0";
    parts.threads = ensemble.hub;
    parts.devices = {device};
    auto started = runtime::Runtime::start(std::move(parts), Deadline::after(patience));
    ASSERT_TRUE(started) << started.error().message;
    hvd_runtime runtime{std::move(*started)};
    {
      Program program(rank, ensemble.world.size(), device);
      body(program, &runtime);
    }
    runtime.runtime.reset();
  });
}

TEST_P(RanksOnGpus, reduce_and_gather_tensors_that_are_late_and_freed_in_flight) {
  run_programs(GetParam(), [](Program& program, hvd_runtime* runtime) { program.run_on(runtime); });
}

TEST(KernelsOnGpus, end_when_their_stream_waits_for_all_results) {
  run_programs({1}, [](Program& program, hvd_runtime* runtime) {
    api::offer_as_current(runtime);
    program.run_kernel_on(runtime);
    api::retire_current(runtime);
  });
}

}  // namespace
}  // namespace hvd
