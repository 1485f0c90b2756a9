// Hierarchy on devices: how long a batch takes in the time of the double's graph, the order of launches on links of
// devices, and failures in every stage.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/hierarchical/on_device/cut.hpp"
#include "collectives/hierarchical/on_device/estimate.hpp"
#include "collectives/hierarchical/on_device/task.hpp"
#include "devices_in_turn.hpp"
#include "sanitized.hpp"

namespace hvd::collectives::hierarchical {
namespace {

using testing::DeviceLinks;
using testing::DevicesInTurn;
using testing::Graph;
using testing::Kind;
using testing::Node;
using testing::Part;
using testing::Ticks;
using testing::Timetable;

constexpr std::int64_t share = 64;  // elements

Collective sum_of_floats(std::int64_t count) {
  Collective collective;
  collective.device = DeviceKind::cuda;
  collective.count = count;
  return collective;
}

// Batches of one size on all ranks, in place, each with a tensor of its own. Rank r gives 1 / (r + 1) everywhere.
class Batches {
 public:
  Batches(DevicesInTurn& ranks, std::int64_t count, int batches = 1) : ranks_(ranks), count_(count) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      Collective collective = sum_of_floats(count);
      collective.stream = ranks.stream(rank);
      tasks.push_back(plan_on_device(collective, ranks.team(rank), share));
      const std::vector<float> values(static_cast<std::size_t>(count * batches), 1.0f / static_cast<float>(rank + 1));
      memory_.push_back(ranks.device(rank).upload(ranks.stream(rank), values.data(), values.size() * sizeof(float)));
    }
    next_tensors();
  }
  ~Batches() { tasks.clear(); }  // they end before the tensors' memory
  Progress run() {
    const Progress progress = ranks_.run(tasks, parts);
    next_tensors();
    return progress;
  }
  std::vector<float> result(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    EXPECT_TRUE(ranks_.device(rank).wait(ranks_.stream(rank), tasks[index]->event()));
    const auto bytes = memory(rank);
    std::vector<float> values(static_cast<std::size_t>(count_));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  // What is in the rank's tensor now.
  std::vector<std::byte> memory(int rank) {
    return ranks_.device(rank).download(ranks_.stream(rank), memory_[static_cast<std::size_t>(rank)].data(),
                                        static_cast<std::size_t>(count_) * sizeof(float));
  }

  DevicesInTurn::Tasks tasks;
  std::vector<Part> parts;

 private:
  void next_tensors() {
    parts.clear();
    for (const devices::Memory& memory : memory_) {
      const Segment whole{
          TensorView{memory.data() + next_ * static_cast<std::size_t>(count_) * sizeof(float), count_, DataType::f32}};
      parts.push_back({{whole}, {whole}});
    }
    ++next_;
  }

  DevicesInTurn& ranks_;
  const std::int64_t count_;
  std::size_t next_ = 0;
  std::vector<devices::Memory> memory_;
};

// ---- the time that a batch takes

// Ticks of one chunk in each stage. The node's link is used by two stages; the copies inside a device share its memory.
struct Times {
  const char* name;
  Ticks pack, scatter, out, rail, back, gather, unpack;
  Ticks slowest(bool has_node) const {
    return std::max({pack + unpack, has_node ? scatter + gather : 0, out, rail, back});
  }
  Ticks sum(bool has_node) const { return pack + out + rail + back + unpack + (has_node ? scatter + gather : 0); }
};
constexpr Times profiles[] = {
    {"all alike", 10, 10, 10, 10, 10, 10, 10},      {"packing is slow", 40, 10, 10, 10, 10, 10, 40},
    {"the node is slow", 5, 40, 10, 10, 10, 40, 5}, {"the bus out is slow", 5, 10, 40, 10, 10, 10, 5},
    {"the rail is slow", 5, 10, 10, 40, 10, 10, 5}, {"the bus in is slow", 5, 10, 10, 10, 40, 10, 5},
    {"a fast device", 1, 2, 20, 25, 20, 2, 1},
};

// What the double has recorded of some batches, with the rails' work between the copies.
class Recorded {
 public:
  Recorded(const std::vector<int>& shape, std::int64_t chunks, int batches) : has_node_(shape.front() > 1) {
    DevicesInTurn ranks(shape, "inproc", DeviceLinks::in_nodes, {}, 0);
    const int rails = shape.front();
    Batches all(ranks, chunks * share * rails, batches);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      devices::finish(ranks.device(rank), ranks.stream(rank));
      ranks.device(rank).engine().record_into(graph_);
    }
    for (int batch = 0; batch < batches; ++batch) EXPECT_NE(all.run(), Progress::failed);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const float one = all.result(rank).front();
      EXPECT_GT(one, 0);
      add_rail(ranks.device(rank).engine().device_in_graph(0), rank % rails, chunks);
    }
    ranks.abort();
  }

  Ticks makespan(const Times& times) const {
    testing::Costs costs;
    costs.of = [&](const Node& node) -> testing::Cost {
      const auto out = out_of_.find(node.device);
      if (node.kind == Kind::host_stage) return {times.rail, 0, ""};
      if (!is_work(node) || out == out_of_.end()) return {};
      switch (node.stream - out->second) {
        case -2: return {times.pack, 0, "memory"};
        case -1:
          if (node.label == name_of(Verb::allgather)) return {times.gather, 0, "link"};
          return {node.label == name_of(Verb::reduce_scatter) ? times.scatter : 0, 0, "link"};
        case 0: return {times.out, 0, "bus out"};
        case 1: return {times.back, 0, "bus in"};
        case 2: return {times.unpack, 0, "memory"};
        default: return {};
      }
    };
    return Timetable(graph_->nodes(), costs).makespan();
  }
  bool has_node() const { return has_node_; }

 private:
  static bool is_work(const Node& node) {
    return node.kind != Kind::record && node.kind != Kind::wait && node.kind != Kind::gives_back;
  }
  // The host has looked at a copy out before the chunk goes along the rail, and the copy back comes after that. A batch
  // begins when the last chunk of the one before has come along the rail.
  void add_rail(int device, int rail, std::int64_t chunks) {
    std::vector<int> out, back, pack;
    const std::vector<Node> nodes = graph_->nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i].device == device && nodes[i].kind == Kind::to_host && nodes[i].bytes == share * sizeof(float)) {
        out.push_back(static_cast<int>(i));
        out_of_[device] = nodes[i].stream;
      }
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].device != device || !is_work(nodes[i])) continue;
      if (nodes[i].stream == out_of_[device] + 1) back.push_back(static_cast<int>(i));
      if (nodes[i].stream == out_of_[device] - 2) pack.push_back(static_cast<int>(i));
    }
    ASSERT_EQ(out.size(), back.size());
    ASSERT_EQ(out.size(), pack.size());
    int before = -1;
    for (std::size_t chunk = 0; chunk < out.size(); ++chunk) {
      if (chunk > 0 && chunk % static_cast<std::size_t>(chunks) == 0) graph_->wait_for(pack[chunk], {before});
      before = graph_->add_host_stage("rail of " + std::to_string(device), 0, {out[chunk]},
                                      "rail " + std::to_string(rail) + " " + std::to_string(chunk));
      graph_->wait_for(back[chunk], {before});
    }
  }

  const bool has_node_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::map<int, int> out_of_;  // for each device, the number of the stream to the host
};

// With HVD_PRINT_TIMES the tests print what they have found.
void report(const std::vector<int>& shape, std::int64_t chunks, const std::string& name, Ticks goal, Ticks found) {
  if (std::getenv("HVD_PRINT_TIMES") == nullptr) return;
  std::printf("%zu nodes x %d ranks, %2ld chunks, %-32s goal %6.0f, found %6.0f (%+.1f %%)\n", shape.size(),
              shape.front(), static_cast<long>(chunks), name.c_str(), goal, found, 100 * (found / goal - 1));
}

// The goal: all chunks but one at the pace of the slowest stage, one chunk through all stages, and a tenth more.
void expect_goal(const std::vector<int>& shape, std::int64_t chunks) {
  const Recorded recorded(shape, chunks, 1);
  for (const Times& times : profiles) {
    const Ticks goal =
        static_cast<Ticks>(chunks - 1) * times.slowest(recorded.has_node()) + times.sum(recorded.has_node());
    const Ticks found = recorded.makespan(times);
    report(shape, chunks, times.name, goal, found);
    EXPECT_LE(found, 1.1 * goal) << times.name;
    EXPECT_GE(found, goal - times.sum(recorded.has_node())) << "faster than the slowest stage";
  }
}

// What the rail loses between two batches: the last chunk's way from the rail to the tensors does not count, since the
// next batch begins before; but its first chunk has to get to the rail.
TEST(HierarchyOnDevices, drains_between_batches_for_no_longer_than_a_chunk_takes) {
  for (const std::vector<int>& shape : {std::vector{1, 1}, {2, 2}})
    for (std::int64_t chunks : {2, 8}) {
      const Recorded one(shape, chunks, 1), three(shape, chunks, 3);
      for (const Times& times : profiles) {
        const Ticks alone = one.makespan(times), drain = (three.makespan(times) - 3 * alone) / 2;
        report(shape, chunks, std::string(times.name) + ", 3 batches", 3 * alone, three.makespan(times));
        EXPECT_LE(drain, 0) << times.name << ": a batch waits for the end of the one before";
      }
    }
}

TEST(HierarchyOnDevices, keeps_the_pace_of_the_slowest_stage) {
  for (std::int64_t chunks : {2, 3, 7, 16}) expect_goal({2, 2}, chunks);
  for (std::int64_t chunks : {2, 7, 32}) expect_goal({1, 1}, chunks);
  for (std::int64_t chunks : {2, 16}) expect_goal({1, 1, 1, 1}, chunks);
  if (testing::is_sanitized) return;
  expect_goal({4, 4, 4}, 9);
  expect_goal({8, 8}, 7);
}
TEST(HierarchyOnDevices, keeps_the_pace_of_the_slowest_stage_with_many_ranks_slow) {
  for (std::int64_t chunks : {2, 8, 16, 64})
    for (const std::vector<int>& shape : {std::vector{8, 8}, {2, 2, 2}, {8, 8, 8, 8}}) expect_goal(shape, chunks);
}

// ---- order, waits and failures

// The launches of a rank, without the numbers of its node and its rail.
std::vector<std::string> without_numbers(const std::vector<std::string>& launches) {
  std::vector<std::string> all;
  for (const std::string& launch : launches) {
    const auto number = launch.find_last_of(" #", launch.find('#') - 1), end = launch.find('#');
    all.push_back(launch.substr(0, number) + launch.substr(end));
  }
  return all;
}

// One rank is far ahead of the others, so what it queues meets nothing that is over: every missing wait is found.
TEST(HierarchyOnDevices, launches_in_one_order_on_all_ranks_though_some_are_late) {
  for (auto [links, shape] : {std::pair{DeviceLinks::in_nodes, std::vector{2, 2}},
                              {DeviceLinks::in_nodes, {1, 1, 1}},
                              {DeviceLinks::in_nodes_and_on_rails, {2, 2}},
                              {DeviceLinks::in_nodes_and_on_rails, {1, 1}}}) {
    DevicesInTurn ranks(shape, "inproc", links, {}, 8);
    Batches batches(ranks, 9 * share * shape.front() + 5);
    static_cast<void>(testing::take_launches());
    for (int batch = 0; batch < 2; ++batch) {
      ranks.restart(batches.tasks, batches.parts);
      for (int step = 0; step < 50; ++step) static_cast<void>(batches.tasks[0]->step());
      ASSERT_NE(ranks.step_until_issued(batches.tasks), Progress::failed);
      std::vector<float> expected;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        EXPECT_TRUE(batches.tasks[static_cast<std::size_t>(rank)]->has_launched());
        const std::vector<float> result = batches.result(rank);
        if (rank == 0) expected = result;
        EXPECT_EQ(result, expected) << "rank " << rank << " has other bits";
      }
    }
    const auto launches = testing::take_launches();
    const bool has_device_links = shape.front() > 1 || links == DeviceLinks::in_nodes_and_on_rails;
    EXPECT_EQ(launches.size(), has_device_links ? static_cast<std::size_t>(ranks.size()) : 0u);
    for (const auto& [rank, mine] : launches)
      EXPECT_EQ(without_numbers(mine), without_numbers(launches.begin()->second)) << "rank " << rank.value;
    ranks.abort();
  }
}

TEST(HierarchyOnDevices, ends_wherever_a_rank_is_lost_and_writes_nothing_afterwards) {
  for (DeviceLinks links : {DeviceLinks::in_nodes, DeviceLinks::in_nodes_and_on_rails})
    for (int steps : {0, 1, 2, 4, 7, 11, 16, 24, 40}) {
      DevicesInTurn ranks({2, 2}, "inproc", links, {}, 4);
      Batches batches(ranks, 8 * share * 2);
      ranks.restart(batches.tasks, batches.parts);
      for (int step = 0; step < steps; ++step)
        for (auto& task : batches.tasks) EXPECT_NE(task->step(), Progress::failed) << "before a rank was lost";
      ranks.ranks.kill(3);
      const Error lost(ErrorCode::peer_lost, "rank 3 is lost");
      for (int rank = 0; rank < ranks.size(); ++rank) ranks.abort(rank, lost);
      for (auto& task : batches.tasks) task.reset();
      for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(batches.memory(rank), batches.memory(rank));
    }
}

TEST(HierarchyOnDevices, fails_by_name_where_a_device_has_no_memory_left) {
  for (int allocations : {0, 3, 14}) {
    DevicesInTurn ranks({2, 2}, "inproc", DeviceLinks::in_nodes);
    Batches batches(ranks, 9 * share * 2);
    ranks.device(2).run_out_after(allocations);
    EXPECT_EQ(ranks.run(batches.tasks, batches.parts), Progress::failed);
    const std::string why = batches.tasks[2]->failure().message;
    for (const char* part : {"rank 2", "allreduce", "no memory left"})
      EXPECT_NE(why.find(part), std::string::npos) << why;
    ranks.abort();
  }
}

// ---- cuts and choices

TEST(CutOfBatch, gives_every_element_to_one_rank_and_keeps_tensors_whole_for_adasum) {
  for (Verb verb : {Verb::allreduce, Verb::adasum})
    for (int rails : {1, 3, 8})
      for (std::int64_t longest : {4, 64, 1000}) {
        Collective collective = sum_of_floats(0);
        collective.verb = verb;
        std::vector<Segment> tensors;
        for (std::int64_t count : {5, 0, 1, 700, 33, 2}) tensors.push_back({TensorView{nullptr, count, DataType::f32}});
        CutOfBatch cut(collective, rails);
        for (int batch = 0; batch < 2; ++batch) cut.restart(tensors, longest);
        std::vector<std::int64_t> ends;
        std::int64_t next = 0;
        for (std::int64_t chunk = 0; chunk < cut.chunks(); ++chunk) {
          std::int64_t place = 0;
          for (const PieceOfChunk& piece : cut.pieces(chunk)) {
            EXPECT_EQ(piece.begin, next);
            EXPECT_EQ(piece.place, place);
            EXPECT_GE(piece.share * rails, piece.count);
            EXPECT_EQ(piece.share % 4, 0) << "not aligned";
            place += piece.share;
            ends.push_back(next += piece.count);
          }
          EXPECT_EQ(place, cut.share(chunk));
          EXPECT_LE(place, cut.longest_share());
          EXPECT_TRUE(verb == Verb::adasum || place <= longest) << place;
        }
        EXPECT_EQ(next, 741);
        const std::vector<std::int64_t> of_tensors{5, 6, 706, 739, 741};
        EXPECT_TRUE(verb == Verb::allreduce || ends == of_tensors);
      }
}

Config with_hierarchy(std::string allreduce, bool torus = false, bool allgather = false) {
  Config config;
  config.hierarchical_allreduce = std::move(allreduce);
  config.torus_allreduce = torus;
  config.hierarchical_allgather = allgather;
  return config;
}
std::string choice(DevicesInTurn& ranks, Verb verb, std::int64_t count) {
  Collective collective = sum_of_floats(count);
  collective.verb = verb;
  std::string name;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    auto algorithm = ranks.ranks.selector->choose(collective, ranks.team(rank));
    const std::string mine = algorithm ? (*algorithm)->name() : algorithm.error().message;
    EXPECT_TRUE(rank == 0 || mine == name) << "rank " << rank << " chooses " << mine << " in place of " << name;
    name = mine;
  }
  return name;
}

TEST(SelectorOnDevices, goes_by_cost_and_by_the_knobs_for_hierarchy) {
  constexpr std::int64_t large = 16 << 20;
  DevicesInTurn nodes({2, 2}, "inproc", DeviceLinks::in_nodes), none({2, 2}, "inproc", DeviceLinks::none),
      flat({2, 2}, "inproc", DeviceLinks::between_all);
  EXPECT_EQ(choice(nodes, Verb::allreduce, large), "hierarchical");
  EXPECT_EQ(choice(nodes, Verb::adasum, large), "hierarchical");
  EXPECT_EQ(choice(nodes, Verb::adasum, 1), "hierarchical") << "the result of Adasum depends on the way";
  EXPECT_EQ(choice(nodes, Verb::broadcast, large), "staged");
  EXPECT_EQ(choice(none, Verb::allreduce, large), "staged");
  EXPECT_EQ(choice(flat, Verb::allreduce, large), "native");
  EXPECT_EQ(choice(flat, Verb::allgather, large), "native");

  DevicesInTurn asked({2, 2}, "inproc", DeviceLinks::in_nodes, with_hierarchy("1")),
      refused({2, 2}, "inproc", DeviceLinks::in_nodes, with_hierarchy("0")),
      torus({2, 2}, "inproc", DeviceLinks::in_nodes_and_on_rails, with_hierarchy("", true)),
      gathers({2, 2}, "inproc", DeviceLinks::between_all, with_hierarchy("", false, true)),
      uneven({1, 2}, "inproc", DeviceLinks::none, with_hierarchy("1")),
      one_node({2}, "inproc", DeviceLinks::between_all, with_hierarchy("1", true, true));
  for (std::int64_t count : {std::int64_t{1}, large}) {
    EXPECT_EQ(choice(asked, Verb::allreduce, count), "hierarchical");
    EXPECT_EQ(choice(refused, Verb::allreduce, count), "staged");
    EXPECT_EQ(choice(torus, Verb::allreduce, count), "hierarchical");
    EXPECT_EQ(choice(torus, Verb::adasum, count), "hierarchical");
    EXPECT_EQ(choice(gathers, Verb::allgather, count), "staged");
    EXPECT_EQ(choice(uneven, Verb::allreduce, count), "staged");
    EXPECT_EQ(choice(one_node, Verb::allreduce, count), "native");
    EXPECT_EQ(choice(one_node, Verb::allgather, count), "native");
  }
  EXPECT_EQ(choice(refused, Verb::adasum, large), "hierarchical");
  const auto explained = [](DevicesInTurn& ranks) {
    return ranks.ranks.selector->explain(sum_of_floats(large), ranks.team(0));
  };
  EXPECT_NE(explained(asked).find("HOROVOD_HIERARCHICAL_ALLREDUCE=1"), std::string::npos) << explained(asked);
  EXPECT_NE(explained(nodes).find(", staged "), std::string::npos) << explained(nodes);
  EXPECT_NE(explained(uneven).find("hierarchical cannot do this"), std::string::npos) << explained(uneven);
  EXPECT_NE(explained(torus).find("HOROVOD_TORUS_ALLREDUCE=1"), std::string::npos) << explained(torus);
}

}  // namespace
}  // namespace hvd::collectives::hierarchical
