#pragma once
// Parts of the tests of the shared-memory transport: links between ranks that are threads, and batches of many tensors.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/collective.hpp"
#include "base/task.hpp"
#include "ranks_as_threads.hpp"
#include "transport/registry.hpp"

namespace hvd::testing {

inline std::unique_ptr<transport::Transport> shm_for(const transport::Surroundings& surroundings) {
  for (const transport::Maker& maker : transport::registry())
    if (std::string_view(maker.name) == "shm") return maker.make(surroundings);
  ADD_FAILURE() << "shm is not in the registry";
  return nullptr;
}

inline std::unique_ptr<transport::Link> connect_all(transport::Transport& shm, RankThread& rank) {
  auto connecting = shm.connect(everybody(rank.world), "world", rank.exchange);
  EXPECT_TRUE(connecting);
  EXPECT_EQ(drive(**connecting, rank.wake), Progress::done);
  return (*connecting)->take();
}

// Two ranks on the test's own thread.
struct Couple {
  Couple() : ensemble(made_up_world({2})), left(ensemble, Rank{0}), right(ensemble, Rank{1}) {
    transports.push_back(shm_for(left.surroundings));
    transports.push_back(shm_for(right.surroundings));
    auto one = transports[0]->connect(everybody(left.world), "world", left.exchange);
    auto other = transports[1]->connect(everybody(right.world), "world", right.exchange);
    EXPECT_TRUE(one && other);
    EXPECT_EQ((*one)->step(), Progress::pending);
    EXPECT_EQ((*other)->step(), Progress::done);
    EXPECT_EQ((*one)->step(), Progress::done);
    left_link = (*one)->take();
    right_link = (*other)->take();
  }
  Ensemble ensemble;
  RankThread left, right;
  std::vector<std::unique_ptr<transport::Transport>> transports;
  std::unique_ptr<transport::Link> left_link, right_link;
};

// `total` elements, divided into tensors of the given lengths, with the segments that point to these tensors.
template <typename T>
class Tensors {
 public:
  Tensors(DataType dtype, const std::vector<std::int64_t>& lengths) {
    for (std::int64_t length : lengths) {
      memory_.emplace_back(static_cast<std::size_t>(length));
      segments_.push_back({TensorView{memory_.back().data(), length, dtype}});
    }
  }
  std::span<const Segment> segments() const { return segments_; }
  std::vector<std::vector<T>>& parts() { return memory_; }
  // Returns all elements, one tensor after the other.
  std::vector<T> values() const {
    std::vector<T> all;
    for (const auto& part : memory_) all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  void fill(const std::vector<T>& values) {
    std::size_t at = 0;
    for (auto& part : memory_)
      for (T& value : part) value = values[at++];
  }

 private:
  std::vector<std::vector<T>> memory_;
  std::vector<Segment> segments_;
};

// Divides `total` into lengths from 0 to `longest`.
inline std::vector<std::int64_t> random_lengths(std::int64_t total, std::int64_t longest, std::mt19937_64& random) {
  std::vector<std::int64_t> lengths;
  while (total > 0) {
    std::int64_t length =
        std::min(total, static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(longest + 1)));
    lengths.push_back(length);
    total -= length;
  }
  return lengths;
}

inline Progress run(Task& task, RankThread& rank, std::span<const Segment> in, std::span<const Segment> out,
                    std::uint64_t sequence) {
  task.restart(in, out, Sequence{sequence});
  return drive(task, rank.wake);
}

}  // namespace hvd::testing
