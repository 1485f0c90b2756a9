// The building blocks of ring, tree and halving_doubling, and what they promise about memory.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "collectives/registry.hpp"
#include "collectives/schedule/chunking.hpp"
#include "collectives/schedule/pairing.hpp"
#include "collectives/schedule/program.hpp"
#include "fixtures/counted_allocations/counted_allocations.hpp"
#include "ranks_in_turn.hpp"
#include "sanitized.hpp"

namespace hvd::collectives {
namespace {

using testing::made_up_world;
using testing::Part;
using testing::RanksInTurn;

std::vector<Segment> tensors_of(std::vector<std::int32_t>& data, const std::vector<std::int64_t>& counts) {
  std::vector<Segment> list;
  std::int64_t begin = 0;
  for (std::int64_t count : counts) {
    list.push_back({TensorView{data.data() + begin, count, DataType::i32}});
    begin += count;
  }
  return list;
}

TEST(SegmentArray, reads_and_writes_across_the_borders_of_its_tensors) {
  std::vector<std::int32_t> data(10), buffer(6, -1);
  std::iota(data.begin(), data.end(), 0);
  SegmentArray array;
  array.assign(tensors_of(data, {3, 0, 4, 3}), DataType::i32);
  EXPECT_EQ(array.count(), 10);
  array.gather(2, 6, reinterpret_cast<std::byte*>(buffer.data()));
  EXPECT_EQ(buffer, (std::vector<std::int32_t>{2, 3, 4, 5, 6, 7}));
  for (auto& value : buffer) value = -value;
  array.scatter(2, 6, reinterpret_cast<std::byte*>(buffer.data()));
  EXPECT_EQ(data, (std::vector<std::int32_t>{0, 1, -2, -3, -4, -5, -6, -7, 8, 9}));
}

TEST(SegmentArray, reads_zeros_from_tensors_that_are_not_there_and_drops_what_is_written_to_them) {
  std::vector<std::int32_t> data{1, 2}, buffer(5, -1);
  std::vector<Segment> list = tensors_of(data, {2});
  list.push_back({TensorView{nullptr, 3, DataType::i32}});
  SegmentArray array;
  array.assign(list, DataType::i32);
  array.gather(0, 5, reinterpret_cast<std::byte*>(buffer.data()));
  EXPECT_EQ(buffer, (std::vector<std::int32_t>{1, 2, 0, 0, 0}));
  buffer.assign(5, 9);
  array.scatter(0, 5, reinterpret_cast<std::byte*>(buffer.data()));
  EXPECT_EQ(data, (std::vector<std::int32_t>{9, 9}));
}

TEST(SegmentArray, knows_which_ranges_are_one_piece_of_memory) {
  std::vector<std::int32_t> data(10);
  SegmentArray array;
  array.assign(tensors_of(data, {4, 6}), DataType::i32);
  EXPECT_EQ(array.contiguous(4, 6), reinterpret_cast<std::byte*>(data.data() + 4));
  EXPECT_EQ(array.contiguous(1, 3), reinterpret_cast<std::byte*>(data.data() + 1));
  EXPECT_EQ(array.contiguous(3, 2), nullptr);
  EXPECT_EQ(array.contiguous(8, 3), nullptr);
  EXPECT_EQ(array.contiguous(0, 0), nullptr);
}

TEST(Chunking, covers_every_element_once_however_it_cuts) {
  const std::vector<std::int64_t> uneven{5, 0, 17, 1};
  for (Verb verb : {Verb::allreduce, Verb::allgather, Verb::reduce_scatter})
    for (bool has_counts : {false, true, false})
      for (std::int64_t chunk : {1, 4, 7, 1000}) {
        if (has_counts && verb == Verb::allreduce) continue;
        Chunking chunking(verb, 4, chunk);
        for (std::int64_t total : {0, 1, 23, 24}) {
          if (has_counts && total != 23) continue;
          chunking.resize(has_counts ? uneven : std::vector<std::int64_t>{},
                          has_counts ? uneven : std::vector<std::int64_t>{});
          chunking.restart(total);
          std::vector<int> covered(static_cast<std::size_t>(total), 0);
          for (std::int64_t c = 0; c < chunking.chunks(); ++c) {
            std::int64_t sum = 0;
            for (int block = 0; block < 4; ++block) {
              for (std::int64_t i = 0; i < chunking.count(c, block, 4); ++i)
                ++covered[static_cast<std::size_t>(chunking.begin(c, block, 4) + i)];
              sum += chunking.count(c, block, 4);
            }
            EXPECT_EQ(sum, chunking.count(c));
            EXPECT_GT(sum, 0);
          }
          EXPECT_EQ(covered, std::vector<int>(static_cast<std::size_t>(total), 1));
        }
      }
}

TEST(Pairing, gives_every_seat_one_actor_and_every_place_its_seats) {
  for (int size = 1; size <= 40; ++size) {
    Pairing pairing(size);
    int seat = 0;
    for (int place = 0; place < pairing.core; ++place) {
      EXPECT_EQ(pairing.actor(place), Seat{seat});
      EXPECT_TRUE(pairing.acts(Seat{seat}));
      EXPECT_EQ(pairing.place_of(Seat{seat}), place);
      ++seat;
      if (!pairing.has_folded(place)) continue;
      EXPECT_FALSE(pairing.acts(Seat{seat}));
      EXPECT_EQ(pairing.place_of(Seat{seat}), place);
      ++seat;
    }
    EXPECT_EQ(seat, size);
    EXPECT_EQ(pairing.first_seat(pairing.core), size);
  }
}

// A ring of three seats with chunks of a few elements.
TEST(ProgramTask, cuts_a_batch_into_many_chunks_and_restarts_with_other_sizes) {
  RanksInTurn ranks(made_up_world({3}), {"inproc"}, 3);
  ranks.ensemble.hub->delay_randomly(3, 5);
  RanksInTurn::Tasks tasks;
  for (int rank = 0; rank < 3; ++rank) {
    Programs programs;
    programs.large.blocks = 3;
    for (int k = 0; k < 4; ++k) {
      Round round;
      round.to = Seat{(rank + 1) % 3};
      round.from = Seat{(rank + 2) % 3};
      int sent = rank + 5 - k;
      round.sent = {sent % 3, sent % 3 + 1};
      round.received = {(sent + 2) % 3, (sent + 2) % 3 + 1};
      round.is_reduced = k < 2;
      programs.large.rounds.push_back(round);
    }
    Collective collective;
    collective.dtype = DataType::i32;
    tasks.push_back(make_program_task(collective, ranks.team(rank), std::move(programs), Cut{40, 3}));
  }
  for (std::size_t count : {100u, 0u, 1u, 9u, 10u, 31u, 1000u, 2u}) {
    std::vector<std::vector<std::int32_t>> data(3, std::vector<std::int32_t>(count));
    std::vector<Part> parts;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      for (std::size_t i = 0; i < count; ++i) data[rank][i] = static_cast<std::int32_t>(i + rank);
      auto half = static_cast<std::int64_t>(count / 2);
      auto list = tensors_of(data[rank], {half, static_cast<std::int64_t>(count) - half});
      parts.push_back({list, list});
    }
    ASSERT_EQ(ranks.run(tasks, parts), Progress::done);
    for (const auto& values : data)
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], static_cast<std::int32_t>(3 * i + 3)) << count;
  }
}

TEST(ProgramTaskDeathTest, names_what_it_expected_when_input_and_output_differ_in_length) {
  RanksInTurn ranks(made_up_world({1}), {"inproc"});
  std::vector<std::int32_t> data(5);
  Collective collective;
  collective.dtype = DataType::i32;
  auto task = make_program_task(collective, ranks.team(0), Programs{});
  EXPECT_DEATH(task->restart(tensors_of(data, {5}), tensors_of(data, {4}), Sequence{1}),
               "allreduce: expected 5 elements of output, found 4");
}

TEST(Algorithms, allocate_nothing_after_the_first_few_batches) {
  for (const Maker& maker : registry())
    for (const VerbRow& row : verbs())
      for (const auto& [shape, count] :
           {std::pair{std::vector{2}, 2000}, {{5}, 2000}, {{2, 2}, 2000}, {{2, 2}, 300}, {{1, 3}, 2000}}) {
        RanksInTurn ranks(made_up_world(shape), {"inproc"}, 3);
        auto algorithm = maker.make();
        const Verb verb = row.verb;
        Collective collective;
        collective.verb = verb;
        collective.dtype = row.takes_floats_only() ? DataType::f32 : DataType::i32;
        collective.count = count;
        if (!algorithm->cost(collective, ranks.team(0)).possible()) continue;
        RanksInTurn::Tasks tasks = ranks.plan(*algorithm, collective);
        std::vector<std::vector<std::int32_t>> in(5, std::vector<std::int32_t>(static_cast<std::size_t>(count))),
            out = in;
        std::vector<Part> parts;
        for (int rank = 0; rank < ranks.size(); ++rank) {
          auto index = static_cast<std::size_t>(rank);
          std::int64_t share = transport::share_of(count, Seat{rank}, ranks.size()).count();
          std::int64_t ins = verb == Verb::allgather ? share : count,
                       outs = verb == Verb::reduce_scatter ? share : count;
          Part part{tensors_of(in[index], {ins / 2, ins - ins / 2}),
                    tensors_of(out[index], {outs / 3, outs - outs / 3})};
          for (auto* list : {&part.in, &part.out})
            for (Segment& segment : *list) segment.view.dtype = collective.dtype;
          if (verb == Verb::barrier) part = {};
          if (verb == Verb::alltoall) part.sent.assign(static_cast<std::size_t>(ranks.size()), count / ranks.size());
          part.received = part.sent;
          parts.push_back(std::move(part));
        }
        // Steps in a fixed order. Then every run stores the same messages, because messages wait for each other in the
        // same way.
        auto run = [&] {
          ranks.restart(tasks, parts);
          bool is_done = false;
          while (!is_done) {
            is_done = true;
            for (auto& task : tasks) is_done &= task->step() == Progress::done;
          }
        };
        for (int batch = 0; batch < 3; ++batch) run();
        std::size_t before = testing::counted_allocations();
        for (int batch = 0; batch < 5; ++batch) run();
        EXPECT_EQ(testing::counted_allocations() - before, 0u)
            << maker.name << " " << name_of(verb) << " of " << ranks.size();
      }
}

// The numbers of elements change with every batch, within the limits of the first ones.
TEST(Algorithms, allocate_nothing_when_every_batch_has_other_shares) {
  for (const Maker& maker : registry())
    for (Verb verb : {Verb::allgather, Verb::reduce_scatter})
      for (const std::vector<int>& shape : {std::vector{2}, {5}, {2, 2}, {1, 3}}) {
        RanksInTurn ranks(made_up_world(shape), {"inproc"}, 3);
        auto algorithm = maker.make();
        Collective collective;
        collective.verb = verb;
        collective.dtype = DataType::i32;
        collective.count = 1000 * ranks.size();
        if (!algorithm->cost(collective, ranks.team(0)).possible()) continue;
        RanksInTurn::Tasks tasks = ranks.plan(*algorithm, collective);
        const auto most = static_cast<std::size_t>(1000 * ranks.size());
        std::vector<std::vector<std::int32_t>> in(tasks.size(), std::vector<std::int32_t>(most)), out = in;
        std::vector<std::vector<Part>> batches;
        for (int batch = 0; batch < 16; ++batch) {
          std::vector<std::int64_t> counts;
          for (int seat = 0; seat < ranks.size(); ++seat)
            counts.push_back(batch == 0   ? 999 + seat % 2
                             : batch == 1 ? 1000
                             : batch == 2 ? 500 + seat % 2
                                          : 500 + (seat * 371 + batch * 167) % 500);
          const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
          std::vector<Part> parts;
          for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
            const bool gathers = verb == Verb::allgather;
            Part part{tensors_of(in[rank], {gathers ? counts[rank] : total}),
                      tensors_of(out[rank], {gathers ? total : counts[rank]})};
            (gathers ? part.received : part.sent) = counts;
            parts.push_back(std::move(part));
          }
          batches.push_back(std::move(parts));
        }
        std::size_t before = 0;
        for (std::size_t batch = 0; batch < batches.size(); ++batch) {
          if (batch == 8) before = testing::counted_allocations();
          ranks.restart(tasks, batches[batch]);
          for (bool is_done = false; !is_done;) {
            is_done = true;
            for (auto& task : tasks) is_done &= task->step() == Progress::done;
          }
        }
        EXPECT_EQ(testing::counted_allocations() - before, 0u)
            << maker.name << " " << name_of(verb) << " of " << ranks.size();
      }
}

#if !HVD_SANITIZED  // the test would take too long under this sanitizer
TEST(Algorithms, reduce_more_than_2_to_the_31_elements_slow) {
  constexpr std::int64_t count = (1ll << 31) + 5;
  RanksInTurn ranks(made_up_world({2}), {"inproc"}, 3);
  Collective collective;
  collective.dtype = DataType::u8;
  collective.count = count;
  std::vector<std::vector<std::uint8_t>> data(2, std::vector<std::uint8_t>(static_cast<std::size_t>(count)));
  std::vector<Part> parts;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (std::size_t i = 0; i < data[rank].size(); ++i)
      data[rank][i] = static_cast<std::uint8_t>(i * (rank + 1) + (i >> 31));
    std::vector<Segment> whole{{TensorView{data[rank].data(), count, DataType::u8}}};
    parts.push_back({whole, whole});
  }
  RanksInTurn::Tasks tasks = ranks.plan(*ranks.selector->choose(collective, ranks.team(0)).value(), collective);
  ASSERT_EQ(ranks.run(tasks, parts), Progress::done);
  for (const auto& values : data)
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] != static_cast<std::uint8_t>(i * 3 + 2 * (i >> 31))) FAIL() << "element " << i;
}
#endif

}  // namespace
}  // namespace hvd::collectives
