// The properties of every kind of memory, tested with the devices of the registry and with the test device.
#include "devices/device.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "devices/registry.hpp"
#include "fixtures/late_device/late_device.hpp"

namespace hvd::devices {
namespace {

using testing::LateDevice;

struct Named {
  const char* name;
  std::unique_ptr<Device> (*make)();
};
std::vector<Named> all_devices() {
  std::vector<Named> all;
  for (const Maker& maker : registry()) all.push_back({maker.name, maker.make});
  all.push_back({"late", []() -> std::unique_ptr<Device> { return std::make_unique<LateDevice>(7); }});
  return all;
}

class EveryDevice : public ::testing::TestWithParam<Named> {
 protected:
  EveryDevice() : device(GetParam().make()), made(device->stream()), stream{made->get()} {}

  Memory numbers(const std::vector<float>& values) {
    auto memory = device->allocate(values.size() * sizeof(float), Where::on_device, stream);
    EXPECT_TRUE(memory);
    EXPECT_TRUE(device->copy(stream, memory->data(), values.data(), values.size() * sizeof(float)));
    finish(*device, stream);  // `values` must not change before the copy is done
    return std::move(*memory);
  }
  std::vector<float> read(const Memory& memory, std::size_t count) {
    std::vector<float> values(count);
    EXPECT_TRUE(device->copy(stream, values.data(), memory.data(), count * sizeof(float)));
    finish(*device, stream);
    return values;
  }

  std::unique_ptr<Device> device;
  Result<std::shared_ptr<void>> made;
  Stream stream;
};
INSTANTIATE_TEST_SUITE_P(all, EveryDevice, ::testing::ValuesIn(all_devices()),
                         [](const auto& device) { return std::string(device.param.name); });

TEST_P(EveryDevice, copies_in_the_order_of_the_stream) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 0.0f);
  Memory first = numbers(values), second = numbers(std::vector<float>(1000));
  EXPECT_TRUE(device->copy(stream, second.data(), first.data(), 4000));
  EXPECT_TRUE(device->copy(stream, first.data(), second.data() + 400, 400));
  std::vector<float> expected = values;
  std::copy(values.begin() + 100, values.begin() + 200, expected.begin());
  EXPECT_EQ(read(second, 1000), values);
  EXPECT_EQ(read(first, 1000), expected);
}

TEST_P(EveryDevice, reduces_many_sources_into_many_destinations) {
  Memory a = numbers({1, 2, 3}), b = numbers({10, 20, 30}), c = numbers({0, 0, 0});
  const void* sources[] = {a.data(), b.data()};
  void* destinations[] = {c.data(), a.data()};
  EXPECT_TRUE(device->reduce(stream, sources, destinations, 3, {DataType::f32, ReduceOp::sum, {2.0, 0.5}}));
  EXPECT_EQ(read(c, 3), (std::vector<float>{11, 22, 33}));
  EXPECT_EQ(read(a, 3), (std::vector<float>{11, 22, 33}));
  EXPECT_EQ(read(b, 3), (std::vector<float>{10, 20, 30}));
}

TEST_P(EveryDevice, lets_a_stream_wait_for_an_event_of_another) {
  auto other = device->stream();
  ASSERT_TRUE(other);
  for (float round = 0; round < 20; ++round) {
    std::vector<float> value{round};
    Memory memory = numbers(value);
    auto written = device->record(stream);
    ASSERT_TRUE(written);
    EXPECT_TRUE(device->wait({other->get()}, *written));
    float found = -1;
    EXPECT_TRUE(device->copy({other->get()}, &found, memory.data(), sizeof found));
    finish(*device, {other->get()});
    EXPECT_EQ(found, round);
  }
}

TEST_P(EveryDevice, knows_the_past_and_posts_the_word_of_who_asked) {
  auto past = device->query(Event{}, nullptr);
  ASSERT_TRUE(past);
  EXPECT_TRUE(*past);
  posix::WaitWord word;
  Memory memory = numbers(std::vector<float>(100));
  auto event = device->record(stream);
  ASSERT_TRUE(event);
  for (;;) {
    std::uint32_t announced = word.announce();
    auto there = device->query(*event, &word);
    ASSERT_TRUE(there);
    if (*there) break;
    word.sleep(announced, posix::WaitWord::forever);
  }
  word.retract();
}

TEST_P(EveryDevice, gives_memory_for_no_bytes_and_takes_it_back_after_its_end) {
  auto nothing = device->allocate(0, Where::on_device, {});
  ASSERT_TRUE(nothing);
  EXPECT_NE(nothing->data(), nullptr);
  auto on_host = device->allocate(100, Where::on_host, {});
  ASSERT_TRUE(on_host);
  std::memset(on_host->data(), 1, 100);
  auto parts = on_host->release();
  EXPECT_FALSE(*on_host);
  device.reset();
  parts.free_owner(parts.owner);
}

TEST(LateDevice, does_nothing_while_a_stream_is_held_and_goes_on_with_others) {
  LateDevice device(3);
  auto held = device.stream(), free = device.stream();
  device.hold({held->get()});
  auto late = device.record({held->get()}), early = device.record({free->get()});
  finish(device, {free->get()});
  EXPECT_TRUE(*device.query(*early, nullptr));
  EXPECT_FALSE(*device.query(*late, nullptr));
  device.let_go({held->get()});
  finish(device, {held->get()});
  EXPECT_TRUE(*device.query(*late, nullptr));
}

TEST(LateDevice, gives_memory_out_again_only_when_its_stream_is_there) {
  LateDevice device;
  auto stream = device.stream();
  auto memory = device.allocate(100, Where::on_device, {stream->get()});
  void* const first = memory->data();
  device.hold({stream->get()});
  *memory = Memory();
  auto other = device.allocate(100, Where::on_device, {});
  EXPECT_NE(other->data(), first);
  EXPECT_EQ(device.allocations(), 2u);
  device.let_go({stream->get()});
  finish(device, {stream->get()});
  EXPECT_EQ(device.allocations(), 1u);
}

TEST(LateDevice, fails_everything_after_a_copy_that_failed) {
  LateDevice device;
  auto stream = device.stream();
  auto memory = device.allocate(100, Where::on_device, {stream->get()});
  std::vector<char> data(100);
  device.fail_copy_after(1);
  device.hold({stream->get()});
  EXPECT_TRUE(device.copy({stream->get()}, memory->data(), data.data(), 100));
  EXPECT_TRUE(device.copy({stream->get()}, memory->data(), data.data(), 50));
  auto event = device.record({stream->get()});
  ASSERT_TRUE(event);
  device.let_go({stream->get()});
  finish(device, {stream->get()});
  auto there = device.query(*event, nullptr);
  ASSERT_FALSE(there);
  EXPECT_EQ(there.error().message, "a copy of 50 bytes failed on the device");
  EXPECT_FALSE(device.copy({stream->get()}, memory->data(), data.data(), 1));
}

TEST(LateDeviceDeathTest, has_memory_that_the_host_cannot_touch) {
  LateDevice device;
  auto memory = device.allocate(100, Where::on_device, {});
  EXPECT_DEATH(*memory->data() = std::byte{1}, "");
}

}  // namespace
}  // namespace hvd::devices
