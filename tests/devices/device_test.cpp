// Tests of every device (every_device.hpp) for those of the registry and the test device, and those of the test device.
#include "devices/every_device.hpp"

#include <algorithm>
#include <string_view>

#include "base/gpu_makes.hpp"
#include "devices/registry.hpp"
#include "fixtures/late_device/late_device.hpp"

namespace hvd::devices {

using testing::LateDevice;

std::vector<Named> all_devices() {
  std::vector<Named> all;
  for (const Maker& maker : registry())  // those of GPUs are tested on the double of their driver (tests/cuda)
    if (const auto device = maker.make(); device != nullptr && device->ordinal() >= 0)
      all.push_back({maker.name, maker.make});
  all.push_back({"late", []() -> std::unique_ptr<Device> { return std::make_unique<LateDevice>(7); }});
  return all;
}

namespace {

// hvd_device_built() and --check-build know a plugin by the row of its make.
TEST(Devices, of_gpus_are_those_of_the_table_of_makes) {
  for (const Maker& maker : registry()) {
    const bool is_known = std::ranges::any_of(
        gpu_makes(), [&](const GpuMake& make) { return std::string_view(make.plugin) == maker.name; });
    EXPECT_TRUE(is_known || std::string_view("host") == maker.name) << maker.name;
  }
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

TEST(LateDevice, fails_everything_after_a_move_that_failed) {
  LateDevice device;
  auto stream = device.stream();
  auto memory = device.allocate(100, Where::on_device, {stream->get()});
  device.fail_move_after(1);
  device.hold({stream->get()});
  const auto zeros = [&](std::int64_t bytes) {
    const Move move{nullptr, memory->data(), bytes};
    return device.move({stream->get()}, {&move, 1}, {DataType::u8, DataType::u8, 1.0});
  };
  EXPECT_TRUE(zeros(100));
  EXPECT_TRUE(zeros(50));
  auto event = device.record({stream->get()});
  ASSERT_TRUE(event);
  device.let_go({stream->get()});
  finish(device, {stream->get()});
  auto there = device.query(*event, nullptr);
  ASSERT_FALSE(there);
  EXPECT_EQ(there.error().message, "a move of 50 bytes failed on the device");
  EXPECT_FALSE(zeros(1));
}

TEST(LateDevice, refuses_moves_that_overlap_and_other_memory_of_the_host) {
  LateDevice device;
  auto stream = device.stream();
  auto memory = device.allocate(100, Where::on_device, {stream->get()});
  std::byte* const data = memory->data();
  std::byte other[20] = {};
  const std::vector<Move> refused[] = {{{data, data + 5, 10}},                              // its own run
                                       {{data, data + 50, 10}, {data + 10, data + 59, 5}},  // two that write
                                       {{data, data + 50, 10}, {data + 55, data + 70, 5}},
                                       {{data, data, 10}, {data, data + 20, 5}},
                                       {{other, data, 10}},
                                       {{data, other, 10}}};
  for (const auto& moves : refused)
    EXPECT_FALSE(device.move({stream->get()}, moves, {DataType::u8, DataType::u8, 1.0}));
  const Move halves{data, data, 10};
  EXPECT_FALSE(device.move({stream->get()}, {&halves, 1}, {DataType::f32, DataType::f16, 1.0}));
  EXPECT_TRUE(device.move({stream->get()}, {&halves, 1}, {DataType::f16, DataType::bf16, 1.0}));
  const Move twice[] = {{data, data + 50, 10}, {data + 5, data + 60, 10}, {data + 20, data + 20, 10}};
  EXPECT_TRUE(device.move({stream->get()}, twice, {DataType::u8, DataType::u8, 2.0}));
  finish(device, {stream->get()});
}

TEST(LateDeviceDeathTest, has_memory_that_the_host_cannot_touch) {
  LateDevice device;
  auto memory = device.allocate(100, Where::on_device, {});
  EXPECT_DEATH(*memory->data() = std::byte{1}, "");
}

}  // namespace
}  // namespace hvd::devices
