// Timetables of the double of a device, compared with graphs that were worked out by hand.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fixtures/device_double/engine.hpp"

namespace hvd::testing {
namespace {

// Kernels cost their bytes in ticks, copies twice that, collectives three times.
Costs costs() {
  Costs costs;
  costs.of = [](const Node& node) -> Cost {
    switch (node.kind) {
      case Kind::kernel: return {0, node.meeting.empty() ? 1.0 : 3.0, {}};
      case Kind::to_host: return {0, 2, "bus out"};
      case Kind::to_device: return {0, 2, "bus in"};
      case Kind::host_stage: return {1, 1, {}};
      case Kind::inside:
      case Kind::host_function:
      case Kind::word:
      case Kind::gives_back:
      case Kind::record:
      case Kind::wait:
      case Kind::host_wait: break;
    }
    return {};
  };
  return costs;
}
bool is_kernel(const Node& node) {
  return node.kind == Kind::kernel && node.meeting.empty();
}
bool is_collective(const Node& node) {
  return !node.meeting.empty();
}

struct Rig {
  explicit Rig(std::shared_ptr<Graph> into = std::make_shared<Graph>()) : graph(std::move(into)), engine({}) {
    engine.record_into(graph);
    for (Engine::Stream stream : {compute, comm}) engine.hold(stream);
  }
  ~Rig() {
    for (Engine::Stream stream : {compute, comm}) engine.let_go(stream);
  }
  Engine::Point queue(Engine::Stream stream, std::size_t bytes, Kind kind = Kind::kernel, std::string meeting = {}) {
    Work work;
    work.kind = kind;
    work.bytes = bytes;
    work.meeting = std::move(meeting);
    return engine.queue(stream, std::move(work)).value();
  }
  void let_wait(Engine::Stream stream, Engine::Stream other) {
    EXPECT_TRUE(engine.wait(stream, engine.record(other).value()));
  }

  std::shared_ptr<Graph> graph;
  Engine engine;
  Engine::Stream compute = engine.make_stream(0, Engine::Order::free);
  Engine::Stream comm = engine.make_stream(0, Engine::Order::free);
};

TEST(TimetableOfTheDouble, of_one_stream_is_a_sum) {
  Rig rig;
  for (std::size_t bytes : {10, 20, 30}) rig.queue(rig.compute, bytes);
  const Timetable table(rig.graph->nodes(), costs());
  EXPECT_EQ(table.makespan(), 60);
  EXPECT_EQ(table.busy_of_stream(rig.engine.device_in_graph(0), rig.engine.number_of(rig.compute)), 60);
}

TEST(TimetableOfTheDouble, of_two_streams_overlaps_as_far_as_events_allow) {
  Rig rig;
  rig.queue(rig.compute, 10);
  rig.let_wait(rig.comm, rig.compute);
  rig.queue(rig.comm, 10, Kind::kernel, "first");  // 10 to 40
  rig.queue(rig.compute, 25);                      // 10 to 35
  rig.let_wait(rig.compute, rig.comm);
  rig.queue(rig.compute, 5);  // 40 to 45
  const Timetable table(rig.graph->nodes(), costs());
  EXPECT_EQ(table.makespan(), 45);
  EXPECT_EQ(table.busy(is_kernel), 40);
  EXPECT_EQ(table.overlap(is_kernel, is_collective), 25);
}

// What a GPU is bought for: with waits at the end the sums travel beside backward, with a wait at each start they do
// not.
TEST(TimetableOfTheDouble, of_backward_shows_where_the_stream_was_ordered_too_early) {
  for (bool is_early : {false, true}) {
    Rig rig;
    constexpr int layers = 8;
    for (int layer = 0; layer < layers; ++layer) {
      rig.queue(rig.compute, 40);
      rig.let_wait(rig.comm, rig.compute);
      rig.queue(rig.comm, 10, Kind::kernel, "sum " + std::to_string(layer));  // 30 ticks
      if (is_early) rig.let_wait(rig.compute, rig.comm);
    }
    rig.let_wait(rig.compute, rig.comm);
    rig.queue(rig.compute, 1);
    const Timetable table(rig.graph->nodes(), costs());
    EXPECT_EQ(table.makespan(), is_early ? 8 * 70 + 1 : 8 * 40 + 30 + 1);
  }
}

TEST(TimetableOfTheDouble, lets_one_copy_at_a_time_use_a_bus) {
  Rig rig;
  rig.queue(rig.compute, 10, Kind::to_host);
  rig.queue(rig.comm, 10, Kind::to_host);
  EXPECT_EQ(Timetable(rig.graph->nodes(), costs()).makespan(), 40);
  Rig both_ways;
  both_ways.queue(both_ways.compute, 10, Kind::to_host);
  both_ways.queue(both_ways.comm, 10, Kind::to_device);
  EXPECT_EQ(Timetable(both_ways.graph->nodes(), costs()).makespan(), 20);
}

TEST(TimetableOfTheDouble, begins_a_meeting_when_its_last_member_is_there) {
  auto graph = std::make_shared<Graph>();
  Rig one(graph), other(graph);
  one.queue(one.compute, 5);
  other.queue(other.compute, 50);
  for (Rig* rig : {&one, &other}) {
    rig->queue(rig->compute, 10, Kind::kernel, "both");
    rig->queue(rig->compute, 1);
  }
  const Timetable table(graph->nodes(), costs());
  EXPECT_EQ(table.makespan(), 50 + 30 + 1);
  EXPECT_EQ(table.busy_of_stream(one.engine.device_in_graph(0), one.engine.number_of(one.compute)), 5 + 30 + 1);
}

TEST(TimetableOfTheDouble, counts_calls_and_sleeps_of_the_host) {
  Rig rig;
  Costs slow = costs();
  slow.per_call = 100;
  for (Engine::Stream stream : {rig.compute, rig.comm}) rig.engine.let_go(stream);
  const Engine::Point first = rig.queue(rig.compute, 10);  // called at 100, done at 110
  rig.queue(rig.compute, 10);                              // called at 200, done at 210
  EXPECT_TRUE(rig.engine.sleep_until(first));
  rig.queue(rig.comm, 500);  // called at 300, done at 800
  EXPECT_EQ(Timetable(rig.graph->nodes(), slow).makespan(), 800);
  EXPECT_TRUE(rig.engine.sleep_until(rig.queue(rig.compute, 1000)));  // called at 400, done at 1400
  rig.queue(rig.comm, 1);                                             // called at 1500
  EXPECT_EQ(Timetable(rig.graph->nodes(), slow).makespan(), 1501);
  for (Engine::Stream stream : {rig.compute, rig.comm}) rig.engine.hold(stream);
}

// A stage's bytes tell for which copy the host has looked; its other looks order nothing.
TEST(TimetableOfTheDouble, follows_bytes_through_a_pipeline_whose_stages_are_the_hosts) {
  Rig rig;
  for (Engine::Stream stream : {rig.compute, rig.comm}) rig.engine.let_go(stream);
  constexpr std::size_t chunk = 10;
  constexpr int chunks = 6;
  std::vector<Engine::Holding> slots;
  std::vector<Engine::Point> copied;
  for (int i = 0; i < chunks; ++i) {
    slots.push_back(rig.engine.allocate(0, Engine::Where::page_locked, chunk).value());
    Work out;
    out.kind = Kind::to_host;
    out.bytes = chunk;
    out.writes = {{slots.back().data(), chunk}};
    copied.push_back(rig.engine.queue(rig.compute, std::move(out)).value());
  }
  for (const auto& point : copied)
    while (!rig.engine.look(point, nullptr).value()) std::this_thread::yield();
  std::vector<int> stages;
  for (const auto& point : copied) stages.push_back(rig.graph->add_host_stage("rail", 30, {point.node}));
  for (int i = 0; i < chunks; ++i) {
    Work back;
    back.kind = Kind::to_device;
    back.bytes = chunk;
    back.reads = {{slots[static_cast<std::size_t>(i)].data(), chunk}};
    const int node = rig.engine.queue(rig.comm, std::move(back)).value().node;
    rig.graph->wait_for(node, {stages[static_cast<std::size_t>(i)]});
  }
  // Out 20, rail 31, back 20: the slowest stage for all chunks, and the others once.
  EXPECT_EQ(Timetable(rig.graph->nodes(), costs()).makespan(), 20 + chunks * 31 + 20);
  EXPECT_TRUE(rig.engine.sleep_until(rig.engine.record(rig.comm).value()));
  for (auto& slot : slots) slot.give_back(nullptr);
  for (Engine::Stream stream : {rig.compute, rig.comm}) rig.engine.hold(stream);
}

}  // namespace
}  // namespace hvd::testing
