// What the double of a device does besides finding races: order, captures, aborts, hangs, memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fixtures/device_double/engine.hpp"

namespace hvd::testing {
namespace {

struct Double : ::testing::Test {
  Engine engine{Engine::Options{3}};
  Engine::Stream stream = engine.make_stream(0, Engine::Order::free);

  Engine::Point run(Engine::Stream on, std::function<void()> body, std::vector<Range> writes = {}) {
    Work work;
    work.writes = std::move(writes);
    work.run = [body = std::move(body)] { return body(), Outcome::done; };
    return engine.queue(on, std::move(work)).value();
  }
  void settle(Engine::Stream on) { EXPECT_TRUE(engine.sleep_until(engine.record(on).value())); }
};
using DoubleOfStreams = Double;

TEST_F(DoubleOfStreams, run_late_in_their_own_order_and_wait_for_events) {
  for (int round = 0; round < 30; ++round) {
    std::string order;
    Engine::Stream other = engine.make_stream(0, Engine::Order::free);
    engine.hold(stream);
    run(stream, [&] { order += 'a'; });
    run(stream, [&] { order += 'b'; });
    EXPECT_TRUE(engine.wait(other, engine.record(stream).value()));
    run(other, [&] { order += 'c'; });
    engine.let_go(stream);
    settle(other);
    EXPECT_EQ(order, "abc");
  }
}

TEST_F(DoubleOfStreams, take_turns_with_the_default_stream_if_they_are_blocking) {
  Engine::Stream blocking = engine.make_stream(0, Engine::Order::with_the_default),
                 by_default = engine.default_stream(0);
  for (int round = 0; round < 30; ++round) {
    std::string order;
    run(blocking, [&] { order += 'a'; });
    run(by_default, [&] { order += 'b'; });
    run(blocking, [&] { order += 'c'; });
    settle(blocking);
    EXPECT_EQ(order, "abc");
  }
  std::atomic<bool> has_run{false};
  engine.hold(stream);
  run(stream, [&] { has_run = true; });
  run(by_default, [] {});
  settle(by_default);  // nor does it wait for a free stream
  EXPECT_FALSE(has_run);
  engine.let_go(stream);
  settle(stream);
}

TEST_F(DoubleOfStreams, are_refused_events_while_they_are_captured) {
  EXPECT_TRUE(engine.begin_capture(stream, Engine::Capture::relaxed));
  std::atomic<bool> has_run{false};
  run(stream, [&] { has_run = true; });
  auto event = engine.record(stream);
  ASSERT_FALSE(event);
  EXPECT_NE(event.error().message.find("is being captured"), std::string::npos);
  EXPECT_EQ(engine.end_capture(stream).value(), 1u);
  settle(stream);
  EXPECT_FALSE(has_run);
}

TEST_F(DoubleOfStreams, lose_a_capture_when_a_thread_looks_that_is_not_relaxed) {
  Engine::Stream other = engine.make_stream(0, Engine::Order::free);
  const Engine::Point point = engine.record(other).value();
  for (bool is_relaxed : {true, false}) {
    EXPECT_TRUE(engine.begin_capture(stream, Engine::Capture::global));
    std::thread([&] {
      Engine::relax_captures(is_relaxed);
      EXPECT_EQ(static_cast<bool>(engine.look(point, nullptr)), is_relaxed);
    }).join();
    EXPECT_EQ(static_cast<bool>(engine.end_capture(stream)), is_relaxed);
  }
}

TEST_F(DoubleOfStreams, end_aborted_work_with_noise_in_what_it_writes) {
  auto holding = engine.allocate(0, Engine::Where::device, 1000).value();
  run(stream, [&] { std::memset(inner_address(holding.data()), 0, 1000); }, {{holding.data(), 1000}});
  Work work;
  std::atomic<bool> is_aborted{false};
  work.writes = {{holding.data(), 500}};
  work.run = [&] { return is_aborted ? Outcome::aborted : Outcome::again; };
  const Engine::Point end = engine.queue(stream, std::move(work)).value();
  EXPECT_FALSE(engine.look(end, nullptr).value());
  is_aborted = true;
  EXPECT_TRUE(engine.sleep_until(end));
  const std::vector<std::byte> data(inner_address(holding.data()), inner_address(holding.data()) + 1000);
  EXPECT_LT(std::count(data.begin(), data.begin() + 500, std::byte{}), 50);
  EXPECT_EQ(std::count(data.begin() + 500, data.end(), std::byte{}), 500);
  holding.give_back(nullptr);
}

TEST_F(DoubleOfStreams, hang_in_looks_and_aborts_when_told_so) {
  const Engine::Point point = engine.record(stream).value();
  settle(stream);
  for (Engine::Call call : {Engine::Call::look, Engine::Call::abort}) {
    engine.hang(call);
    std::atomic<bool> has_returned{false};
    std::thread thread([&] {
      if (call == Engine::Call::look) EXPECT_TRUE(engine.look(point, nullptr).value());
      else engine.pass(call);
      has_returned = true;
    });
    for (int i = 0; i < 100; ++i) std::this_thread::yield();
    EXPECT_FALSE(has_returned);
    engine.let_return(call);
    thread.join();
  }
}

TEST_F(DoubleOfStreams, drop_what_is_queued_when_the_device_fails) {
  engine.hold(stream);
  bool has_run = false;
  const Engine::Point end = run(stream, [&] { has_run = true; });
  posix::WaitWord word;
  const std::uint32_t announced = word.announce();
  EXPECT_FALSE(engine.look(end, &word).value());
  engine.fail("the power is out");
  word.sleep(announced, posix::WaitWord::forever);
  EXPECT_EQ(engine.look(end, nullptr).error().message, "the power is out");
  EXPECT_EQ(engine.record(stream).error().message, "the power is out");
  EXPECT_FALSE(has_run);
}

TEST(DoubleOfMemory, belongs_to_one_device_each_and_outlives_the_engine) {
  std::vector<Engine::Holding> holdings;
  {
    Engine engine({1, 8, 2, 1 << 20});
    Engine::Stream on_second = engine.make_stream(1, Engine::Order::free);
    for (int device : {0, 1}) {
      holdings.push_back(engine.allocate(device, Engine::Where::device, 100).value());
      EXPECT_EQ(Arena::of(holdings.back().data())->device(), device);
      EXPECT_FALSE(engine.allocate(device, Engine::Where::device, 2 << 20));
    }
    EXPECT_EQ(engine.device_of(on_second), 1);
    EXPECT_EQ(*inner_address(holdings[0].data()), std::byte{0xff});
  }
  for (auto& holding : holdings) holding.give_back(nullptr);
}

TEST(DoubleOfMemory, notices_bytes_that_were_changed_beside_an_allocation) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer ends the program";
#endif
  Engine engine(Engine::Options{});
  auto holding = engine.allocate(0, Engine::Where::device, 100).value();
  inner_address(holding.data())[100] = std::byte{};
  holding.give_back(nullptr);
  const auto found = take_findings();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().fault, Fault::overrun);
}

TEST(DoubleOfMemoryDeathTest, of_a_device_ends_a_host_that_touches_it) {
  Engine engine(Engine::Options{});
  auto holding = engine.allocate(0, Engine::Where::device, 100).value();
  EXPECT_DEATH(*holding.data() = std::byte{1}, "the host touches the memory of a device");
  holding.give_back(nullptr);
}

}  // namespace
}  // namespace hvd::testing
