#pragma once
// Whole runtimes, as threads of one test, whose tensors are in the memory of late devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fixtures/late_device/direct_transport.hpp"
#include "fixtures/late_device/late_device.hpp"
#include "ranks_as_threads.hpp"
#include "runtime/runtime.hpp"

namespace hvd::runtime::rigs {

using hvd::testing::Ensemble;
using hvd::testing::LateDevice;
using hvd::testing::RankThread;

inline constexpr auto patience = std::chrono::seconds(60);  // processors may be shared with many programs

// A rank's runtime with a device, and a stream of the program on this device.
class DeviceRig {
 public:
  // `change` may change what the runtime is made of.
  DeviceRig(Ensemble& ensemble, RankThread& thread, bool is_direct, bool has_net,
            const std::function<void(Runtime::Parts&)>& change = nullptr)
      : device(std::make_shared<LateDevice>(static_cast<std::uint64_t>(thread.rank().value) + 1)),
        owner_(device->stream().value()),
        stream{owner_.get()},
        program(std::in_place, device->engine()) {
    Runtime::Parts parts;
    if (has_net) parts.net = ensemble.take_listener(thread.rank());
    parts.world = ensemble.world;
    parts.world.rank = thread.rank();
    parts.config = ensemble.config;
    parts.config.nccl = "0";
    parts.threads = ensemble.hub;
    parts.devices = {device};
    if (is_direct) parts.transports = {hvd::testing::direct_transport};
    if (change) change(parts);
    auto started = Runtime::start(std::move(parts), Deadline::after(patience));
    if (started) runtime = std::move(*started);
    else ADD_FAILURE() << started.error().message;
  }

  struct Use {
    std::string name;
    Verb verb = Verb::allreduce;
    std::vector<std::int64_t> shape;
    const void* input = nullptr;
    void* output = nullptr;
    bool has_stream = true;
    DeviceKind device = DeviceKind::cuda;
    int set = 0;
    Rank root{0};
  };
  Result<Handles::Number> start(const std::vector<Use>& uses) {
    std::vector<Start> starts;
    for (const Use& use : uses) {
      Signature signature;
      signature.verb = use.verb;
      signature.shape = use.shape;
      signature.device = use.device;
      if (signature.row().agreed == VerbRow::Agreed::all_but_first) signature.shape[0] = 0;
      signature.root = use.root;
      auto operation = runtime->prepare(use.name, signature, use.set);
      if (!operation) return operation.error();
      Start start{*operation, use.input, use.output, use.shape.empty() ? 0 : use.shape[0]};
      if (use.has_stream) start.stream = stream;
      starts.push_back(start);
    }
    return runtime->submit(starts);
  }
  HandleCell& cell(Handles::Number handle) { return *runtime->find(handle); }
  bool is_done(Handles::Number handle) { return Handles::is_done(cell(handle)); }
  bool wait_until_done(Handles::Number handle) { return runtime->wait(cell(handle), Deadline::after(patience)); }
  // Returns the error's text, "" if there is none. The stream is ordered.
  std::string wait(Handles::Number handle) {
    EXPECT_TRUE(wait_until_done(handle));
    if (program) program->is_told();
    const Status ordered = runtime->order(cell(handle));
    if (cell(handle).error) return cell(handle).error->message;
    return ordered ? "" : ordered.error().message;
  }
  std::string finish(Handles::Number handle) {
    std::string text = wait(handle);
    runtime->release(cell(handle));
    return text;
  }
  std::string run(const Use& use) {
    auto handle = start({use});
    return handle ? finish(*handle) : handle.error().message;
  }

  devices::Memory upload(const std::vector<float>& values) {
    return device->upload(stream, values.data(), values.size() * sizeof(float));
  }
  // Returns the values when the program's stream has reached this point.
  std::vector<float> read(const void* address, std::size_t count) {
    auto bytes = device->download(stream, address, count * sizeof(float));
    std::vector<float> values(count);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  std::shared_ptr<LateDevice> device;
  std::shared_ptr<void> owner_;
  Stream stream;
  // The program's thread knows of the device only what it has seen, and what the runtime has told it. A test may end
  // that.
  std::optional<hvd::testing::Engine::Separate> program;
  std::unique_ptr<Runtime> runtime;
};

inline std::vector<float> part_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 13));
  return values;
}
inline std::vector<float> sum_of(int ranks, std::size_t count) {
  std::vector<float> values(count);
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < count; ++i) values[i] += static_cast<float>((rank + 1) * static_cast<int>(i % 13));
  return values;
}

inline void with_devices(Ensemble& ensemble, bool is_direct, const std::function<void(DeviceRig&, int rank)>& program,
                         bool has_net = false, bool has_loss = false,
                         const std::function<void(Runtime::Parts&)>& change = nullptr) {
  run_ranks(ensemble, [&](RankThread& thread) {
    DeviceRig rig(ensemble, thread, is_direct, has_net, change);
    if (rig.runtime) program(rig, thread.rank().value);
    rig.runtime.reset();
    devices::finish(*rig.device, rig.stream);
    // Results that aborted work may still write to are left, never given back.
    const std::size_t left = has_loss ? 0 : rig.device->allocations();
    EXPECT_EQ(left, 0u) << "memory was not given back on rank " << thread.rank().value;
  });
}

}  // namespace hvd::runtime::rigs
