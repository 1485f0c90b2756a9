#pragma once
// A whole runtime for each rank of a test. The ranks are threads, which communicate over links in the process.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ranks_as_threads.hpp"
#include "runtime/runtime.hpp"
#include "topology/layout.hpp"

namespace hvd::testing {

using runtime::HandleCell;
using runtime::Handles;
using runtime::Observer;
using runtime::Runtime;
using runtime::Signature;
using runtime::Start;

inline constexpr auto start_time = std::chrono::seconds(30);

// A rank's runtime and the calls that a program makes.
class Rig {
 public:
  Rig(Ensemble& ensemble, RankThread& thread, std::vector<Observer*> observers = {},
      std::optional<connections::NetListener> net = {}) {
    Runtime::Parts parts;
    parts.world = ensemble.world;
    parts.world.rank = thread.rank();
    parts.config = ensemble.config;
    parts.threads = ensemble.hub;
    parts.observers = std::move(observers);
    parts.net = std::move(net);
    begin(std::move(parts));
  }
  explicit Rig(Runtime::Parts parts) { begin(std::move(parts)); }

  void begin(Runtime::Parts parts) {
    auto started = Runtime::start(std::move(parts), Deadline::after(start_time));
    if (!started) {
      ADD_FAILURE() << started.error().message;
      return;
    }
    runtime = std::move(*started);
  }

  struct Use {
    Signature signature;
    std::string name;
    const void* input = nullptr;
    void* output = nullptr;
    std::int64_t rows = 0;
  };
  Result<Handles::Number> start(const std::vector<Use>& uses) {
    std::vector<Start> starts;
    for (const Use& use : uses) {
      auto operation = runtime->prepare(use.name, use.signature);
      if (!operation) return operation.error();
      starts.push_back({*operation, use.input, use.output, use.rows});
    }
    return runtime->submit(starts);
  }
  // Returns the error's text, "" if there is none.
  std::string finish(Handles::Number handle) {
    HandleCell* cell = runtime->find(handle);
    EXPECT_NE(cell, nullptr);
    if (cell == nullptr) return "no handle";
    EXPECT_TRUE(runtime->wait(*cell, Deadline::after(std::chrono::seconds(60))));
    std::string text = cell->error ? cell->error->message : "";
    runtime->release(*cell);
    return text;
  }
  std::string allreduce(const std::string& name, std::vector<float>& data) {
    auto handle = start({{floats(static_cast<std::int64_t>(data.size())), name, data.data(), data.data()}});
    return handle ? finish(*handle) : handle.error().message;
  }
  static Signature floats(std::int64_t count) {
    Signature signature;
    signature.shape = {count};
    return signature;
  }

  std::unique_ptr<Runtime> runtime;
};

inline float part(int rank, std::size_t i) {
  return static_cast<float>(rank + 1) * static_cast<float>(i % 13);
}
inline std::vector<float> parts(int rank, std::size_t count) {
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) result[i] = part(rank, i);
  return result;
}
inline std::vector<float> sums(int ranks, std::size_t count) {
  std::vector<float> result(count);
  for (int rank = 0; rank < ranks; ++rank)
    for (std::size_t i = 0; i < count; ++i) result[i] += part(rank, i);
  return result;
}

// Returns the shape of one node, and shapes that place the same ranks on several nodes.
inline std::vector<std::vector<int>> shapes_of(int ranks) {
  std::vector<std::vector<int>> shapes{{ranks}};
  if (ranks >= 2) shapes.push_back({ranks - 1, 1});
  if (ranks >= 3) shapes.push_back(std::vector<int>(static_cast<std::size_t>(ranks), 1));
  if (ranks >= 5) shapes.push_back({1, 2, ranks - 3});
  return shapes;
}

using Listeners = std::vector<std::optional<connections::NetListener>>;

// If the world has several nodes, they are connected over loopback: each rank then has a listener.
inline void listen_over_loopback(Ensemble& ensemble, Listeners& listeners) {
  listeners.resize(static_cast<std::size_t>(ensemble.world.size()));
  if (topology::layout_of(ensemble.world).nodes > 1) {
    ensemble.config.network_interfaces = "lo";
    ensemble.world.secret = "known to these threads only";
    for (std::size_t rank = 0; rank < listeners.size(); ++rank) {
      auto listener = connections::NetListener::open(ensemble.config);
      ASSERT_TRUE(listener) << listener.error().message;
      ensemble.world.members[rank].endpoints = listener->endpoints();
      listeners[rank] = std::move(*listener);
    }
  }
}

inline void with_runtimes(Ensemble& ensemble, const std::function<void(Rig&, int rank)>& program) {
  Listeners listeners;
  ASSERT_NO_FATAL_FAILURE(listen_over_loopback(ensemble, listeners));
  run_ranks(ensemble, [&](RankThread& thread) {
    auto& listener = listeners[static_cast<std::size_t>(thread.rank().value)];
    Rig rig(ensemble, thread, {}, std::exchange(listener, std::nullopt));
    if (rig.runtime) program(rig, thread.rank().value);
  });
}

class ThreeRanks : public ::testing::TestWithParam<std::vector<int>> {};

}  // namespace hvd::testing
