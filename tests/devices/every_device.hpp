#pragma once
// The properties of every kind of memory, as tests for each device that a program's all_devices() lists. One file of a
// program includes this.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "devices/device.hpp"
#include "devices/naive_moves.hpp"
#include "sanitized.hpp"

namespace hvd::devices {

struct Named {
  const char* name;
  std::unique_ptr<Device> (*make)();
};
// The program's own list.
std::vector<Named> all_devices();

class EveryDevice : public ::testing::TestWithParam<Named> {
 protected:
  EveryDevice() : device(GetParam().make()), made(device->stream()), stream{made->get()} {}

  Memory memory_of(std::size_t bytes, Where where) {
    auto memory = device->allocate(bytes, where, where == Where::on_device ? stream : Stream{});
    EXPECT_TRUE(memory);
    return std::move(*memory);
  }
  // Returns memory with these bytes, which are there when the stream reaches this point.
  Memory put(std::span<const std::byte> bytes, Where where) {
    Memory on_host = memory_of(bytes.size(), Where::on_host);
    std::ranges::copy(bytes, on_host.data());
    if (where == Where::on_host) return on_host;
    Memory memory = memory_of(bytes.size(), where);
    move_bytes(on_host.data(), memory.data(), bytes.size());
    finish(*device, stream);
    return memory;
  }
  std::vector<std::byte> get(const void* data, std::size_t bytes) {
    Memory on_host = memory_of(bytes, Where::on_host);
    move_bytes(data, on_host.data(), bytes);
    finish(*device, stream);
    return {on_host.data(), on_host.data() + bytes};
  }
  void move_bytes(const void* from, void* to, std::size_t bytes) {
    const Move move{from, to, static_cast<std::int64_t>(bytes)};
    EXPECT_TRUE(device->move(stream, {&move, 1}, {DataType::u8, DataType::u8, 1.0}));
  }

  Memory numbers(const std::vector<float>& values) { return put(std::as_bytes(std::span(values)), Where::on_device); }
  std::vector<float> read(const Memory& memory, std::size_t count) {
    const auto bytes = get(memory.data(), count * sizeof(float));
    std::vector<float> values(count);
    std::ranges::copy(bytes, reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  // Moves between two arrays in these kinds of memory.
  void check(const std::vector<std::int64_t>& counts, const Treatment& treatment, std::size_t grain,
             std::mt19937_64& random) {
    naive::Arrays arrays(counts, treatment, grain, random);
    const auto before = arrays.to;
    const Where kinds[] = {Where::on_device, Where::on_host};
    const Where of_from = kinds[random() % 2], of_to = kinds[random() % 2];
    const Memory from = put(arrays.from, of_from), to = put(arrays.to, of_to);
    EXPECT_TRUE(device->move(stream, arrays.moves(from.data(), to.data()), treatment));
    arrays.to = get(to.data(), before.size());
    naive::expect_moved(arrays, before, treatment);
  }

  std::unique_ptr<Device> device;
  Result<std::shared_ptr<void>> made;
  Stream stream;
};
INSTANTIATE_TEST_SUITE_P(all, EveryDevice, ::testing::ValuesIn(all_devices()),
                         [](const auto& device) { return std::string(device.param.name); });

constexpr Treatment as_it_is{DataType::f32, DataType::f32, 1.0};

TEST_P(EveryDevice, moves_in_the_order_of_the_stream) {
  std::vector<float> values(1000);
  std::iota(values.begin(), values.end(), 0.0f);
  Memory first = numbers(values), second = numbers(std::vector<float>(1000));
  const Move there[] = {{first.data(), second.data(), 1000}}, back[] = {{second.data() + 400, first.data(), 100}};
  EXPECT_TRUE(device->move(stream, there, as_it_is));
  EXPECT_TRUE(device->move(stream, back, as_it_is));
  std::vector<float> expected = values;
  std::copy(values.begin() + 100, values.begin() + 200, expected.begin());
  EXPECT_EQ(read(second, 1000), values);
  EXPECT_EQ(read(first, 1000), expected);
}

TEST_P(EveryDevice, moves_and_treats_every_type_at_every_alignment) {
  std::mt19937_64 random(5);
  const std::vector<std::int64_t> counts = {0, 1, 7, 16, 64, 255, 1023, 4097, 1, 2, 3};
  for (const Treatment& treatment : naive::all_treatments()) {
    for (std::size_t grain : {1, 2, 4, 8, 16}) check(counts, treatment, grain, random);
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryDevice, moves_hundreds_of_tensors_and_large_ones_in_one_call) {
  std::mt19937_64 random(6);
  std::vector<std::int64_t> small(800);
  for (std::int64_t& count : small) count = static_cast<std::int64_t>(random() % 40);
  const std::int64_t large = (testing::is_sanitized ? 1 << 15 : 1 << 20) + 3;
  for (const Treatment& treatment :
       {as_it_is, Treatment{DataType::f32, DataType::bf16, 0.5}, Treatment{DataType::f16, DataType::f64, 3.0}}) {
    check(small, treatment, 4, random);
    check({5, large, 7}, treatment, 1, random);
  }
}

TEST_P(EveryDevice, moves_nothing_for_empty_lists_and_empty_tensors) {
  Memory memory = numbers({1, 2, 3});
  EXPECT_TRUE(device->move(stream, {}, as_it_is));
  const Move none[] = {{memory.data() + 4, memory.data(), 0}, {nullptr, memory.data(), 0}, {nullptr, nullptr, 0}};
  EXPECT_TRUE(device->move(stream, none, as_it_is));
  EXPECT_EQ(read(memory, 3), (std::vector<float>{1, 2, 3}));
}

TEST_P(EveryDevice, scales_in_place) {
  Memory memory = numbers({1, 2, 3});
  const Move move{memory.data(), memory.data(), 3};
  EXPECT_TRUE(device->move(stream, {&move, 1}, {DataType::f32, DataType::f32, 0.5}));
  EXPECT_EQ(read(memory, 3), (std::vector<float>{0.5f, 1, 1.5f}));
}

// Whether they are copied, scaled or there already, few or many.
TEST_P(EveryDevice, makes_results_NaN_only_after_an_abort) {
  const Memory memory_of_word = memory_of(sizeof(std::uint32_t), Where::on_host);
  auto* word = reinterpret_cast<std::uint32_t*>(memory_of_word.data());
  *word = 0;
  for (const bool is_aborted : {false, true}) {
    if (is_aborted) *word = 1;
    for (const bool is_in_place : {false, true})
      for (const std::size_t tensors : {1, 5, 400})
        for (const double scale : {1.0, 0.5}) {
          const Memory from = numbers(std::vector<float>(tensors * 3, 8)),
                       to = numbers(std::vector<float>(tensors * 3));
          const Memory& in = is_in_place ? to : from;
          std::vector<Move> moves;
          for (std::size_t i = 0; i < tensors; ++i) moves.push_back({in.data() + 12 * i, to.data() + 12 * i, 3});
          EXPECT_TRUE(device->move(stream, moves, {DataType::f32, DataType::f32, scale, word}));
          const float expected = is_in_place ? 0 : static_cast<float>(8 * scale);
          for (const float value : read(to, tensors * 3))
            ASSERT_TRUE(is_aborted ? std::isnan(value) : value == expected) << tensors << " tensors, found " << value;
        }
  }
  const Memory integers = put(std::vector<std::byte>(8, std::byte{7}), Where::on_device);
  const Move move{integers.data(), integers.data(), 2};
  EXPECT_TRUE(device->move(stream, {&move, 1}, {DataType::i32, DataType::i32, 1.0, word}));
  EXPECT_EQ(get(integers.data(), 8), std::vector<std::byte>(8, std::byte{7}));
}

// The product is computed in the wider type, and what is stored is rounded once.
TEST_P(EveryDevice, computes_in_the_wider_type) {
  const float three = 3, third = 1.0f / 3;
  const double above = 1 + 0x1p-11 + 0x1p-40;  // 1 + 2^-10 as a half; as a float just between two halves
  const Memory from = put(std::as_bytes(std::span(&three, 1)), Where::on_device);
  const Memory doubles = put(std::as_bytes(std::span(&above, 1)), Where::on_device);
  const Memory to = memory_of(32, Where::on_device);
  const auto moved = [&](const Memory& source, auto found, const Treatment& treatment) {
    const Move move{source.data(), to.data(), 1};
    EXPECT_TRUE(device->move(stream, {&move, 1}, treatment));
    std::memcpy(&found, get(to.data(), sizeof found).data(), sizeof found);
    return found;
  };
  EXPECT_EQ(moved(from, 0.0f, {DataType::f32, DataType::f32, 1.0 / 3}), 3 * third);
  EXPECT_EQ(moved(from, 0.0, {DataType::f32, DataType::f64, 1.0 / 7}), 3 * (1.0 / 7));
  EXPECT_EQ(moved(doubles, 0.0f, {DataType::f64, DataType::f32, 2.0}), 2 + 0x1p-10f);
  EXPECT_EQ(moved(doubles, std::uint16_t{}, {DataType::f64, DataType::f16, 1.0}), 0x3C01);
}

TEST_P(EveryDevice, refuses_conversions_that_no_device_has) {
  Memory memory = numbers({1, 2, 3});
  const Move move{memory.data(), memory.data(), 3};
  for (const Treatment& treatment :
       {Treatment{DataType::i32, DataType::f32, 1.0}, Treatment{DataType::f32, DataType::i32, 1.0},
        Treatment{DataType::i64, DataType::i32, 1.0}, Treatment{DataType::boolean, DataType::u8, 1.0}}) {
    const Status moved = device->move(stream, {&move, 1}, treatment);
    ASSERT_FALSE(moved);
    EXPECT_NE(moved.error().message.find(name_of(treatment.from)), std::string::npos) << moved.error().message;
    EXPECT_NE(moved.error().message.find(name_of(treatment.to)), std::string::npos) << moved.error().message;
  }
  EXPECT_EQ(read(memory, 3), (std::vector<float>{1, 2, 3}));
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
    Memory found = memory_of(sizeof round, Where::on_host);
    const Move move{memory.data(), found.data(), 1};
    EXPECT_TRUE(device->move({other->get()}, {&move, 1}, as_it_is));
    finish(*device, {other->get()});
    EXPECT_EQ(std::memcmp(found.data(), &round, sizeof round), 0);
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

}  // namespace hvd::devices
