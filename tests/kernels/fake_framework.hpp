#pragma once
// A framework that has what kernels need: threads of its own that hold no lock of Horovod's, memory of its own for
// results, and values that are there later. It knows nothing of Python.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "horovod.hpp"
#include "python/kernels/use.hpp"

namespace hvd::testing {

using Values = std::vector<float>;

// What a kernel has computed: the values of each of its tensors, and for a tensor whose size was not known the rows
// that came from each rank.
struct Computed {
  hvd_status status = HVD_OK;
  std::string message;
  std::vector<Values> values;
  std::vector<std::vector<std::int64_t>> rows;
};

// How many kernels have begun and ended in this process.
inline std::atomic<int> begun{0}, ended{0};

class Kernel final : public kernels::Use {
 public:
  using Then = std::function<void(const Computed&)>;

  explicit Kernel(int ranks = 1, int set = 0) : Use(set), ranks_(ranks) { ++begun; }

  Kernel& reduce(const std::string& name, Values values) {
    kernels::Member& member = add(name, HVD_ALLREDUCE, std::move(values));
    member.output = computed_.values.back().data();
    return *this;
  }
  Kernel& gather(const std::string& name, Values values) {
    add(name, HVD_ALLGATHER, std::move(values));
    return *this;
  }
  Kernel& then(Then next) {
    then_ = std::move(next);
    return *this;
  }
  kernels::Member& last() { return members.back(); }

  void* allocate(std::size_t member, int dimensions, const std::int64_t* shape, std::size_t bytes) override {
    EXPECT_EQ(dimensions, 1);
    computed_.values[member].resize(static_cast<std::size_t>(shape[0]));
    EXPECT_EQ(bytes, computed_.values[member].size() * sizeof(float));
    return computed_.values[member].data();
  }
  void take(std::size_t member, const hvd_completion& it) override {
    if (members[member].what.verb != HVD_ALLGATHER) return;
    computed_.rows[member].resize(static_cast<std::size_t>(ranks_));
    EXPECT_EQ(hvd_result_splits(it.runtime, it.handle, it.index, computed_.rows[member].data(),
                                computed_.rows[member].size()),
              HVD_OK)
        << hvd_last_error();
  }
  void end(const kernels::Ending& ending) override {
    ++ended;
    computed_.status = ending.status;
    computed_.message = ending.message;
    if (then_) then_(computed_);
  }

 private:
  kernels::Member& add(const std::string& name, hvd_verb verb, Values values) {
    inputs_.push_back(std::make_unique<Values>(std::move(values)));
    computed_.values.emplace_back(verb == HVD_ALLREDUCE ? inputs_.back()->size() : 0);
    computed_.rows.emplace_back();
    kernels::Member& member = members.emplace_back();
    member.name = name;
    member.what.verb = verb;
    member.what.shape = {static_cast<std::int64_t>(inputs_.back()->size())};
    member.input = inputs_.back()->data();
    return member;
  }

  const int ranks_;
  std::vector<std::unique_ptr<Values>> inputs_;
  Computed computed_;
  Then then_;
};

// Begins the kernel. Its outcome is there later.
inline std::future<Computed> begin(std::unique_ptr<Kernel> kernel) {
  auto computed = std::make_shared<std::promise<Computed>>();
  kernel->then([computed](const Computed& found) { computed->set_value(found); });
  auto later = computed->get_future();
  kernels::submit(std::move(kernel));
  return later;
}

inline std::unique_ptr<Kernel> reduction(const std::string& name, Values values) {
  auto kernel = std::make_unique<Kernel>();
  kernel->reduce(name, std::move(values));
  return kernel;
}

}  // namespace hvd::testing
