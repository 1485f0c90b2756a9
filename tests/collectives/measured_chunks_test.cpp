// The size of chunks of hierarchy on devices by measurement, in the time of clocks that count what the double's devices
// and the rails have done.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/hierarchical/on_device/estimate.hpp"
#include "collectives/hierarchical/on_device/slots.hpp"
#include "collectives/hierarchical/on_device/task.hpp"
#include "devices_in_turn.hpp"

namespace hvd::collectives::hierarchical {
namespace {

using testing::DeviceLinks;
using testing::DevicesInTurn;
using testing::Kind;
using testing::Node;
using testing::Part;

// Passes everything on, and counts what is sent.
class CountingLink final : public transport::Link {
 public:
  explicit CountingLink(transport::Link& link) : link_(link) {}
  const Group& group() const override { return link_.group(); }
  transport::Pending send(Seat to, ConstBytes bytes, Channel channel) override {
    ++messages_;
    bytes_ += bytes.size();
    return link_.send(to, bytes, channel);
  }
  transport::Pending recv(Seat from, Bytes bytes, Channel channel) override { return link_.recv(from, bytes, channel); }
  Progress poll(transport::Pending pending) override { return link_.poll(pending); }
  const Error& failure() const override { return link_.failure(); }
  transport::NativeCollectives* native() noexcept override { return nullptr; }
  void abort(const Error& reason) noexcept override { link_.abort(reason); }

  double seconds(const MessageCost& cost) const {
    return static_cast<double>(messages_) * cost.latency_s + static_cast<double>(bytes_) * cost.seconds_per_byte;
  }

 private:
  transport::Link& link_;
  std::size_t messages_ = 0, bytes_ = 0;
};

// Ranks with clocks, that reduce a batch of floats of which rank r gives 1 / (r + 1).
class Measured {
 public:
  struct Clocks {
    MessageCost rail = network_cost(2);
    std::vector<double> factors = {1, 1, 1, 1};  // by rank: how fast its clock goes
  };
  Measured(const Clocks& clocks, DeviceLinks links, int longest_delay = 0)
      : ranks({2, 2}, "inproc", links, {}, longest_delay), clocks_(clocks) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      Team& team = ranks.team(rank);
      Team& rail = *team.host->rail;
      links_.push_back(std::make_unique<CountingLink>(*rail.link));
      rail.link = links_.back().get();
      devices::finish(ranks.device(rank), ranks.stream(rank));
      ranks.device(rank).engine().record_into(graph_);
      team.clock = [this, rank] { return seconds(rank); };
    }
  }
  ~Measured() {
    ranks.abort();
    tasks_.clear();
  }

  void plan(Verb verb = Verb::allreduce) {
    tasks_.clear();
    parts_.clear();
    for (int rank = 0; rank < ranks.size(); ++rank) {
      collective_.verb = verb;
      collective_.device = DeviceKind::cuda;
      collective_.count = count;
      collective_.stream = ranks.stream(rank);
      tasks_.push_back(plan_on_device(collective_, ranks.team(rank)));
      const std::vector<float> values(static_cast<std::size_t>(count), 1.0f / static_cast<float>(rank + 1));
      memory_.push_back(ranks.device(rank).upload(ranks.stream(rank), values.data(), values.size() * sizeof(float)));
      const Segment whole{TensorView{memory_.back().data(), count, DataType::f32}};
      parts_.push_back({{whole}, {whole}});
    }
  }
  Progress run() { return ranks.run(tasks_, parts_); }
  void restart() { ranks.restart(tasks_, parts_); }
  Task& task(int rank) { return *tasks_[static_cast<std::size_t>(rank)]; }
  Progress step_until_issued() { return ranks.step_until_issued(tasks_); }
  void give_up() { tasks_.clear(); }

  const StageCosts* costs(int rank, bool is_over_host = true) {
    const auto& costs = Slots::of(ranks.team(rank))->costs(is_over_host);
    return costs ? &*costs : nullptr;
  }
  std::int64_t share(int rank) { return best_share(collective_, ranks.team(rank), count, costs(rank)); }
  // How many copies to the host were queued.
  int copies_out(int rank) {
    const int device = ranks.device(rank).engine().device_in_graph(0);
    const auto nodes = graph_->nodes();
    return static_cast<int>(std::ranges::count_if(
        nodes, [&](const Node& node) { return node.device == device && node.kind == Kind::to_host; }));
  }
  std::vector<std::byte> result(int rank) {
    EXPECT_TRUE(ranks.device(rank).wait(ranks.stream(rank), task(rank).event()));
    const std::size_t latest = memory_.size() - static_cast<std::size_t>(ranks.size() - rank);
    return ranks.device(rank).download(ranks.stream(rank), memory_[latest].data(),
                                       static_cast<std::size_t>(count) * sizeof(float));
  }

  static constexpr std::int64_t count = 1 << 19;  // elements
  DevicesInTurn ranks;

 private:
  double seconds(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    double all = links_[index]->seconds(clocks_.rail);
    const int device = ranks.device(rank).engine().device_in_graph(0);
    for (const Node& node : graph_->nodes()) {
      if (node.device != device || node.bytes == 0) continue;
      const bool is_on_bus = node.kind == Kind::to_host || node.kind == Kind::to_device;
      const MessageCost& cost = is_on_bus ? bus : device_memory;
      all += cost.latency_s + static_cast<double>(node.bytes) * cost.seconds_per_byte;
    }
    return clocks_.factors[index] * all;
  }

  const Clocks clocks_;
  std::shared_ptr<testing::Graph> graph_ = std::make_shared<testing::Graph>();
  std::vector<std::unique_ptr<CountingLink>> links_;
  std::vector<devices::Memory> memory_;
  Collective collective_;
  DevicesInTurn::Tasks tasks_;
  std::vector<Part> parts_;
};

constexpr int copies_while_measuring = 3 * 2 * 4 + 1;  // times, lengths, copies in a turn; zeros before

TEST(MeasuredChunks, are_larger_where_every_message_on_the_rail_is_dear) {
  std::vector<std::int64_t> shares;
  for (double latency_s : {1e-6, 30e-6, 1e-3}) {
    Measured measured({.rail = {latency_s, 1 / 10e9}}, DeviceLinks::in_nodes);
    measured.plan();
    ASSERT_EQ(measured.run(), Progress::done);
    ASSERT_NE(measured.costs(0), nullptr);
    shares.push_back(measured.share(0));
    const std::int64_t chunks = (Measured::count + 2 * shares.back() - 1) / (2 * shares.back());
    EXPECT_EQ(measured.copies_out(0), copies_while_measuring + chunks) << "the batch was cut in another way";
    EXPECT_NEAR(measured.costs(0)->out.latency_s, bus.latency_s, 1e-9);
    EXPECT_NEAR(measured.costs(0)->out.seconds_per_byte, bus.seconds_per_byte, 1e-15);
    EXPECT_GE(measured.costs(0)->rail.latency_s, latency_s);
  }
  EXPECT_LT(shares[0], shares[1]);
  EXPECT_LT(shares[1], shares[2]);
}

TEST(MeasuredChunks, are_cut_alike_by_all_ranks_though_their_measurements_differ) {
  Measured measured({.factors = {1, 7, 0.1, 3}}, DeviceLinks::in_nodes, 8);
  measured.plan();
  measured.restart();
  for (int step = 0; step < 50; ++step) static_cast<void>(measured.task(0).step());
  EXPECT_FALSE(measured.task(0).has_launched()) << "another set's batch would be launched in between";
  ASSERT_NE(measured.step_until_issued(), Progress::failed);
  const std::vector<std::byte> expected = measured.result(0);
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_NE(measured.costs(rank), nullptr);
    EXPECT_EQ(measured.share(rank), measured.share(0));
    EXPECT_EQ(measured.copies_out(rank), measured.copies_out(0));
    EXPECT_NEAR(measured.costs(rank)->out.latency_s, 7 * bus.latency_s, 1e-9) << "not that of the slowest";
    EXPECT_EQ(measured.result(rank), expected);
  }
  const float first = *reinterpret_cast<const float*>(expected.data());
  EXPECT_NEAR(first, 1 + 1. / 2 + 1. / 3 + 1. / 4, 1e-6);
}

TEST(MeasuredChunks, are_measured_once_for_each_kind_of_rail) {
  Measured measured({}, DeviceLinks::in_nodes_and_on_rails);
  measured.plan();
  ASSERT_NE(measured.run(), Progress::failed);
  ASSERT_NE(measured.costs(0, false), nullptr);
  EXPECT_EQ(measured.costs(0, true), nullptr);
  EXPECT_EQ(measured.copies_out(0), 0);
  measured.plan(Verb::adasum);
  ASSERT_NE(measured.run(), Progress::failed);
  ASSERT_NE(measured.costs(0, true), nullptr);
  const int copies = measured.copies_out(0);
  EXPECT_GT(copies, copies_while_measuring);
  for (int rank = 0; rank < 4; ++rank) static_cast<void>(measured.result(rank));  // orders the streams of the program
  ASSERT_NE(measured.run(), Progress::failed);
  EXPECT_EQ(measured.copies_out(0) - copies, copies - copies_while_measuring) << "it was measured again";
}

TEST(MeasuredChunks, are_those_of_assumed_costs_without_a_clock) {
  Measured measured({}, DeviceLinks::in_nodes);
  for (int rank = 0; rank < 4; ++rank) measured.ranks.team(rank).clock = {};
  measured.plan();
  ASSERT_NE(measured.run(), Progress::failed);
  EXPECT_EQ(measured.costs(0), nullptr);
  EXPECT_EQ(measured.copies_out(0), (Measured::count + 2 * measured.share(0) - 1) / (2 * measured.share(0)));
}

TEST(MeasuredChunks, end_wherever_a_rank_is_lost_while_they_are_measured) {
  for (DeviceLinks links : {DeviceLinks::in_nodes, DeviceLinks::in_nodes_and_on_rails})
    for (int steps : {0, 3, 20, 60}) {
      Measured measured({}, links, 4);
      measured.plan();
      measured.restart();
      for (int step = 0; step < steps; ++step) {
        for (int rank = 0; rank < 4; ++rank)
          EXPECT_NE(measured.task(rank).step(), Progress::failed) << "before a rank was lost";
        std::this_thread::yield();
      }
      measured.ranks.ranks.kill(3);
      for (int rank = 0; rank < 4; ++rank) measured.ranks.abort(rank, Error(ErrorCode::peer_lost, "rank 3 is lost"));
      measured.give_up();
    }
}

TEST(MeasuredChunks, fail_by_name_where_a_device_fails_or_has_no_memory) {
  for (bool has_memory : {false, true}) {
    Measured measured({}, DeviceLinks::in_nodes);
    measured.plan();
    if (has_memory) measured.ranks.device(2).fail_move_after(9);
    else measured.ranks.device(2).run_out_after(3);
    EXPECT_EQ(measured.run(), Progress::failed);
    const std::string why = measured.task(2).failure().message;
    EXPECT_NE(why.find("rank 2 cannot"), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace hvd::collectives::hierarchical
