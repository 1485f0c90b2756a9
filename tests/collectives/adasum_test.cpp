// The purpose of Adasum: it adds orthogonal vectors and averages parallel ones, whatever their length.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "collectives/registry.hpp"
#include "conformance/naive.hpp"
#include "ranks_in_turn.hpp"

namespace hvd::collectives {
namespace {

using testing::load;
using testing::made_up_world;
using testing::Part;
using testing::RanksInTurn;
using testing::store;

constexpr DataType float_types[] = {DataType::f16, DataType::bf16, DataType::f32, DataType::f64};

Collective adasum_of(DataType dtype) {
  Collective collective;
  collective.verb = Verb::adasum;
  collective.dtype = dtype;
  return collective;
}

// One input tensor per rank, and one tensor per rank for the result. Values are rounded to the type.
struct TensorOfRanks {
  TensorOfRanks(DataType type, std::size_t ranks, std::size_t count) : dtype(type) {
    inputs.assign(ranks, Buffer(count * size_of(dtype)));
    outputs = inputs;
  }
  void set(std::size_t rank, std::size_t element, double value) {
    store(dtype, value, inputs[rank].data() + element * size_of(dtype));
  }
  double found(std::size_t rank, std::size_t element) const {
    return load(dtype, outputs[rank].data() + element * size_of(dtype));
  }
  std::vector<Part> parts() {
    std::vector<Part> list(inputs.size());
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      auto segment = [&](Buffer& buffer) {
        auto count = static_cast<std::int64_t>(buffer.size() / size_of(dtype));
        return Segment{TensorView{buffer.data(), count, dtype}};
      };
      list[rank].in = {segment(inputs[rank])};
      list[rank].out = {segment(outputs[rank])};
    }
    return list;
  }

  DataType dtype;
  std::vector<Buffer> inputs, outputs;
};

Progress run(RanksInTurn& ranks, const Collective& collective, const std::vector<Part>& parts) {
  RanksInTurn::Tasks tasks = ranks.plan(*ranks.selector->choose(collective, ranks.team(0)).value(), collective);
  return ranks.run(tasks, parts);
}

// Calls the body for 1, 2, 4 and 8 ranks, every transport whose ranks can be threads, and every floating type.
template <typename Body>
void for_all_worlds(Body body) {
  for (const char* transport : {"inproc", "shm", "tcp"})
    for (const std::vector<int>& shape : {std::vector{1}, {2}, {4}, {8}, {1, 1}, {2, 2}, {1, 3}})
      for (DataType dtype : float_types) {
        RanksInTurn ranks(made_up_world(shape), {transport, "inproc"}, 5);
        ASSERT_TRUE(ranks.is_connected());
        SCOPED_TRACE(std::string(transport) + ", " + std::to_string(ranks.size()) + " ranks on " +
                     std::to_string(shape.size()) + " nodes, " + name_of(dtype));
        body(ranks, dtype);
      }
}

TEST(Adasum, adds_orthogonal_vectors) {
  for_all_worlds([](RanksInTurn& ranks, DataType dtype) {
    auto size = static_cast<std::size_t>(ranks.size());
    TensorOfRanks tensor(dtype, size, 100);
    for (std::size_t element = 0; element < 100; ++element)
      tensor.set(element % size, element, static_cast<double>(element % 13) - 6);
    ASSERT_EQ(run(ranks, adasum_of(dtype), tensor.parts()), Progress::done);
    for (std::size_t rank = 0; rank < size; ++rank)
      for (std::size_t element = 0; element < 100; ++element)
        EXPECT_EQ(tensor.found(rank, element), static_cast<double>(element % 13) - 6);
  });
}

TEST(Adasum, averages_parallel_vectors) {
  for_all_worlds([](RanksInTurn& ranks, DataType dtype) {
    auto size = static_cast<std::size_t>(ranks.size());
    TensorOfRanks tensor(dtype, size, 300);
    double mean = 0;
    for (std::size_t rank = 0; rank < size; ++rank) {
      for (std::size_t element = 0; element < 300; ++element)
        tensor.set(rank, element, std::ldexp(static_cast<double>(element % 5) - 2, static_cast<int>(rank % 2)));
      mean += std::ldexp(1.0 / static_cast<double>(size), static_cast<int>(rank % 2));
    }
    ASSERT_EQ(run(ranks, adasum_of(dtype), tensor.parts()), Progress::done);
    for (std::size_t rank = 0; rank < size; ++rank)
      for (std::size_t element = 0; element < 300; ++element)
        EXPECT_EQ(tensor.found(rank, element), mean * (static_cast<double>(element % 5) - 2));
  });
}

// The squares of these numbers would be zero in the tensor's own type.
TEST(Adasum, averages_parallel_vectors_of_tiny_numbers) {
  for_all_worlds([](RanksInTurn& ranks, DataType dtype) {
    const int exponent = dtype == DataType::f16 ? -13 : dtype == DataType::f64 ? -200 : -120;
    auto size = static_cast<std::size_t>(ranks.size());
    TensorOfRanks tensor(dtype, size, 77);
    for (std::size_t rank = 0; rank < size; ++rank)
      for (std::size_t element = 0; element < 77; ++element) tensor.set(rank, element, std::ldexp(1.0, exponent));
    ASSERT_EQ(run(ranks, adasum_of(dtype), tensor.parts()), Progress::done);
    for (std::size_t element = 0; element < 77; ++element)
      EXPECT_EQ(tensor.found(0, element), std::ldexp(1.0, exponent));
  });
}

TEST(Adasum, averages_parallel_vectors_of_very_different_numbers) {
  for_all_worlds([](RanksInTurn& ranks, DataType dtype) {
    const int step = dtype == DataType::f16 ? 1 : dtype == DataType::f64 ? 40 : 10;
    auto size = static_cast<std::size_t>(ranks.size());
    TensorOfRanks tensor(dtype, size, 24);
    auto value = [&](std::size_t element) { return std::ldexp(1.0, step * (static_cast<int>(element) - 12)); };
    for (std::size_t rank = 0; rank < size; ++rank)
      for (std::size_t element = 0; element < 24; ++element) tensor.set(rank, element, value(element));
    ASSERT_EQ(run(ranks, adasum_of(dtype), tensor.parts()), Progress::done);
    for (std::size_t element = 0; element < 24; ++element) EXPECT_EQ(tensor.found(0, element), value(element));
  });
}

TEST(Adasum, adds_vectors_too_short_to_have_a_direction) {
  for_all_worlds([](RanksInTurn& ranks, DataType) {
    auto size = static_cast<std::size_t>(ranks.size());
    TensorOfRanks tensor(DataType::f64, size, 5);
    for (std::size_t rank = 0; rank < size; ++rank)
      for (std::size_t element = 0; element < 5; ++element) tensor.set(rank, element, 1e-90);
    ASSERT_EQ(run(ranks, adasum_of(DataType::f64), tensor.parts()), Progress::done);
    for (std::size_t element = 0; element < 5; ++element)
      EXPECT_DOUBLE_EQ(tensor.found(0, element), 1e-90 * static_cast<double>(size));
  });
}

TEST(Adasum, scales_before_and_after) {
  for_all_worlds([](RanksInTurn& ranks, DataType dtype) {
    auto size = static_cast<std::size_t>(ranks.size());
    TensorOfRanks tensor(dtype, size, 40);
    for (std::size_t element = 0; element < 40; ++element) tensor.set(element % size, element, 3);
    Collective collective = adasum_of(dtype);
    collective.prescale = 2;
    collective.postscale = 0.25;
    ASSERT_EQ(run(ranks, collective, tensor.parts()), Progress::done);
    for (std::size_t element = 0; element < 40; ++element) EXPECT_EQ(tensor.found(0, element), 1.5);
  });
}

TEST(Adasum, takes_a_rank_without_tensors_for_zeros) {
  for_all_worlds([](RanksInTurn& ranks, DataType dtype) {
    auto size = static_cast<std::size_t>(ranks.size());
    TensorOfRanks tensor(dtype, size, 40);
    for (std::size_t rank = 0; rank < size; ++rank)
      for (std::size_t element = 0; element < 40; ++element) tensor.set(rank, element, rank + 1 == size ? 9 : 1);
    std::vector<Part> parts = tensor.parts();
    if (size == 1) return;
    parts.back().in[0].view.data = parts.back().out[0].view.data = nullptr;
    ASSERT_EQ(run(ranks, adasum_of(dtype), parts), Progress::done);
    for (std::size_t element = 0; element < 40; ++element) EXPECT_EQ(tensor.found(0, element), 1);
  });
}

TEST(Adasum, is_for_floats_and_powers_of_two_alone) {
  RanksInTurn three(made_up_world({3}), {"inproc"}), four(made_up_world({4}), {"inproc"});
  EXPECT_FALSE(three.selector->choose(adasum_of(DataType::f32), three.team(0)));
  EXPECT_FALSE(four.selector->choose(adasum_of(DataType::i32), four.team(0)));
  EXPECT_TRUE(four.selector->choose(adasum_of(DataType::bf16), four.team(0)));
}

}  // namespace
}  // namespace hvd::collectives
