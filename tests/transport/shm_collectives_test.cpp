#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "sanitized.hpp"
#include "shm_ranks.hpp"
#include "transport/shm/regions.hpp"
#include "transport/shm/shared_area.hpp"

namespace hvd::transport {
namespace {

using testing::connect_all;
using testing::Couple;
using testing::random_lengths;
using testing::RankThread;
using testing::run;
using testing::run_ranks;
using testing::shm_for;
using testing::Tensors;

constexpr std::int64_t large = (testing::is_sanitized ? 64 << 10 : 1 << 20) + 3;
const std::vector<std::int64_t> sizes = {0, 1, 7, 15, 31, 4096, 8193, 40'000, large};

// Small whole numbers. Therefore every order of additions has the same result.
template <typename T>
std::vector<T> numbers_of(int rank, std::int64_t count, std::uint64_t salt) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>((i * 7 + static_cast<std::size_t>(rank) * 3 + salt) % 11);
  }
  return values;
}

// Every rank runs one plan over all sizes, twice, with one tensor and with many tensors.
template <typename T>
void check_allreduce(RankThread& rank, DataType dtype) {
  auto transport = shm_for(rank.surroundings);
  auto link = connect_all(*transport, rank);
  Collective collective;
  collective.dtype = dtype;
  auto task = link->native()->plan(collective);
  std::mt19937_64 random(17);  // the same on all ranks
  std::uint64_t sequence = 0;
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t count : sizes) {
      rank.note("allreduce of " + std::to_string(count));
      auto lengths = round == 0 ? std::vector<std::int64_t>{count} : random_lengths(count, 1 + count / 20, random);
      Tensors<T> tensors(dtype, lengths);
      tensors.fill(numbers_of<T>(rank.rank().value, count, sequence));
      ASSERT_EQ(run(*task, rank, tensors.segments(), tensors.segments(), sequence), Progress::done);
      std::vector<T> expected(static_cast<std::size_t>(count));
      for (int other = 0; other < rank.world.size(); ++other) {
        auto theirs = numbers_of<T>(other, count, sequence);
        for (std::size_t i = 0; i < theirs.size(); ++i) expected[i] = static_cast<T>(expected[i] + theirs[i]);
      }
      ASSERT_EQ(tensors.values(), expected) << count << " elements";
      ++sequence;
    }
  }
}

class ShmRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(of_a_node, ShmRanks, ::testing::Values(1, 2, 3, 5, 8), ::testing::PrintToStringParamName());

TEST_P(ShmRanks, sum_floats_of_any_size_in_one_tensor_or_many) {
  run_ranks({GetParam()}, [](RankThread& rank) { check_allreduce<float>(rank, DataType::f32); });
}
TEST_P(ShmRanks, sum_doubles) {
  run_ranks({GetParam()}, [](RankThread& rank) { check_allreduce<double>(rank, DataType::f64); });
}
TEST_P(ShmRanks, sum_bytes) {
  run_ranks({GetParam()}, [](RankThread& rank) { check_allreduce<std::uint8_t>(rank, DataType::u8); });
}
TEST_P(ShmRanks, sum_long_integers) {
  run_ranks({GetParam()}, [](RankThread& rank) { check_allreduce<std::int64_t>(rank, DataType::i64); });
}

TEST_P(ShmRanks, average_into_other_memory_and_leave_the_input_alone) {
  run_ranks({GetParam()}, [](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    Collective collective;
    collective.prescale = 2.0;
    collective.postscale = 0.5 / rank.world.size();
    auto task = link->native()->plan(collective);
    for (std::int64_t count : {5, 9'000, 200'001}) {
      Tensors<float> in(DataType::f32, {count}), out(DataType::f32, {count});
      std::vector<float> mine(static_cast<std::size_t>(count), static_cast<float>(rank.rank().value));
      in.fill(mine);
      ASSERT_EQ(run(*task, rank, in.segments(), out.segments(), 0), Progress::done);
      EXPECT_EQ(in.values(), mine);
      float average = static_cast<float>(rank.world.size() - 1) / 2;
      for (float value : out.values()) ASSERT_FLOAT_EQ(value, average);
    }
  });
}

TEST_P(ShmRanks, take_a_tensor_without_data_for_zeros) {
  run_ranks({GetParam()}, [](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    auto task = link->native()->plan(Collective{});
    bool has_joined = rank.rank().value == rank.world.size() - 1;
    for (std::int64_t count : {1, 40, 5'000, 300'001}) {
      Tensors<float> tensors(DataType::f32, {count, 3});
      tensors.fill(std::vector<float>(static_cast<std::size_t>(count + 3), 1.0F));
      std::vector<Segment> segments(tensors.segments().begin(), tensors.segments().end());
      if (has_joined) {
        for (Segment& segment : segments) segment.view.data = nullptr;
      }
      ASSERT_EQ(run(*task, rank, segments, segments, 0), Progress::done);
      float expected = has_joined ? 1.0F : static_cast<float>(rank.world.size() - 1);
      for (float value : tensors.values()) ASSERT_EQ(value, expected);
    }
  });
}

TEST_P(ShmRanks, broadcast_from_every_root) {
  run_ranks({GetParam()}, [](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    std::vector<std::unique_ptr<Task>> tasks;
    for (int root = 0; root < rank.world.size(); ++root) {
      Collective collective;
      collective.verb = Verb::broadcast;
      collective.dtype = DataType::i32;
      collective.root = Seat{root};
      tasks.push_back(link->native()->plan(collective));
    }
    std::mt19937_64 random(3);
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (std::int64_t count : sizes) {
        for (int root = 0; root < rank.world.size(); ++root) {
          rank.note("broadcast of " + std::to_string(count) + " from " + std::to_string(root));
          auto expected = numbers_of<std::int32_t>(root, count, static_cast<std::uint64_t>(repeat));
          Tensors<std::int32_t> tensors(DataType::i32, random_lengths(count, 1 + count / 3, random));
          if (root == rank.rank().value) tensors.fill(expected);
          ASSERT_EQ(run(*tasks[static_cast<std::size_t>(root)], rank, tensors.segments(), tensors.segments(), 0),
                    Progress::done);
          ASSERT_EQ(tensors.values(), expected);
        }
      }
    }
  });
}

// The longest lengths take several chunks in every configuration.
const std::vector<std::int64_t> share_lengths = testing::is_sanitized
                                                    ? std::vector<std::int64_t>{0, 1, 300, 30'000}
                                                    : std::vector<std::int64_t>{0, 1, 300, 70'000, 200'000};

std::vector<std::int64_t> uneven_counts(int seats, std::int64_t around) {
  std::vector<std::int64_t> counts;
  for (int seat = 0; seat < seats; ++seat) counts.push_back(seat % 3 == 1 ? 0 : around + seat * 7);
  return counts;
}

TEST_P(ShmRanks, allgather_uneven_shares) {
  run_ranks({GetParam()}, [](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    std::mt19937_64 random(5);
    Collective collective;
    collective.verb = Verb::allgather;
    collective.dtype = DataType::i16;
    auto task = link->native()->plan(collective);
    for (std::int64_t around : share_lengths) {
      rank.note("allgather around " + std::to_string(around));
      auto counts = uneven_counts(rank.world.size(), around);
      task->resize({}, counts);
      std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      std::int64_t mine = counts[static_cast<std::size_t>(rank.rank().value)];
      for (std::uint64_t repeat = 0; repeat < 3; ++repeat) {
        Tensors<std::int16_t> in(DataType::i16, {mine / 2, mine - mine / 2});
        Tensors<std::int16_t> out(DataType::i16, random_lengths(total, 1 + total / 4, random));
        in.fill(numbers_of<std::int16_t>(rank.rank().value, mine, repeat));
        ASSERT_EQ(run(*task, rank, in.segments(), out.segments(), repeat), Progress::done);
        std::vector<std::int16_t> expected;
        for (int seat = 0; seat < rank.world.size(); ++seat) {
          auto theirs = numbers_of<std::int16_t>(seat, counts[static_cast<std::size_t>(seat)], repeat);
          expected.insert(expected.end(), theirs.begin(), theirs.end());
        }
        ASSERT_EQ(out.values(), expected);
      }
    }
  });
}

TEST_P(ShmRanks, reduce_and_scatter_even_and_uneven_shares_and_gather_them_again) {
  run_ranks({GetParam()}, [](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    int size = rank.world.size(), me = rank.rank().value;
    Collective collective;
    collective.verb = Verb::reduce_scatter;
    auto reduce = link->native()->plan(collective);
    collective.verb = Verb::allgather;
    auto gather = link->native()->plan(collective);
    for (std::int64_t around : share_lengths) {
      for (bool is_even : {true, false, true}) {
        rank.note("reduce_scatter around " + std::to_string(around));
        auto counts = uneven_counts(size, around);
        std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
        const std::span<const std::int64_t> told = is_even ? std::span<const std::int64_t>() : counts;
        reduce->resize(told, {});
        gather->resize({}, told);
        std::int64_t mine = is_even ? share_of(total, Seat{me}, size).count() : counts[static_cast<std::size_t>(me)];
        for (std::uint64_t repeat = 0; repeat < 2; ++repeat) {
          Tensors<float> in(DataType::f32, {total / 3, total - total / 3}), share(DataType::f32, {mine});
          in.fill(numbers_of<float>(me, total, repeat));
          ASSERT_EQ(run(*reduce, rank, in.segments(), share.segments(), repeat), Progress::done);
          ASSERT_EQ(run(*gather, rank, share.segments(), in.segments(), repeat), Progress::done);
          std::vector<float> expected(static_cast<std::size_t>(total));
          for (int seat = 0; seat < size; ++seat) {
            auto theirs = numbers_of<float>(seat, total, repeat);
            for (std::size_t i = 0; i < theirs.size(); ++i) expected[i] += theirs[i];
          }
          ASSERT_EQ(in.values(), expected) << total << " elements";
        }
      }
    }
  });
}

// All verbs over one link, in an order that is drawn equally on all ranks. Every rank checks its results.
class MixedVerbs {
 public:
  explicit MixedVerbs(RankThread& rank)
      : rank_(rank),
        transport_(shm_for(rank.surroundings)),
        link_(connect_all(*transport_, rank)),
        size_(rank.world.size()),
        me_(rank.rank().value) {
    for (const VerbRow& row : verbs()) plans_.push_back(plan(row.verb));
    for (int root = 0; root < size_; ++root) broadcasts_.push_back(plan(Verb::broadcast, root));
  }

  void run_round(int round) {
    round_ = round;
    count_ = random_() % 8 == 0 ? 50'000 : static_cast<std::int64_t>(random_() % 3000);
    auto root = static_cast<int>(random_() % static_cast<std::uint64_t>(size_));
    // alltoall is drawn most often, because it leaves the link in another state for the next verb.
    constexpr Verb drawn[] = {Verb::barrier,        Verb::allgather, Verb::allreduce, Verb::broadcast,
                              Verb::reduce_scatter, Verb::alltoall,  Verb::alltoall,  Verb::alltoall};
    Verb verb = drawn[random_() % std::size(drawn)];
    rank_.note("round " + std::to_string(round) + ": " + name_of(verb));
    switch (verb) {
      case Verb::alltoall: return exchange();
      case Verb::broadcast: return reduce_or_broadcast(*broadcasts_[static_cast<std::size_t>(root)], root + round);
      case Verb::allreduce: return reduce_or_broadcast(plan_of(verb), sum_of_all());
      case Verb::allgather: return gather();
      case Verb::reduce_scatter: return reduce_and_scatter();
      case Verb::barrier:
      case Verb::join:
      case Verb::adasum:
      case Verb::add_set:
      case Verb::remove_set: ASSERT_EQ(run(plan_of(verb), rank_, {}, {}, 0), Progress::done);
    }
  }

 private:
  using Numbers = Tensors<std::int32_t>;

  std::unique_ptr<Task> plan(Verb verb, int root = 0) {
    Collective collective;
    collective.verb = verb;
    collective.dtype = DataType::i32;
    collective.root = Seat{root};
    return link_->native()->cost(collective).possible() ? link_->native()->plan(collective) : nullptr;
  }
  Task& plan_of(Verb verb) { return *plans_[static_cast<std::size_t>(verb)]; }
  std::int32_t sum_of_all() const { return round_ * size_ + size_ * (size_ - 1) / 2; }
  void fill(Numbers& numbers, std::int64_t count) const {
    numbers.fill(std::vector<std::int32_t>(static_cast<std::size_t>(count), me_ + round_));
  }

  void reduce_or_broadcast(Task& task, std::int32_t expected) {
    Numbers mine(DataType::i32, {count_});
    fill(mine, count_);
    ASSERT_EQ(run(task, rank_, mine.segments(), mine.segments(), 0), Progress::done);
    for (std::int32_t value : mine.values()) ASSERT_EQ(value, expected);
  }
  void gather() {
    Numbers mine(DataType::i32, {count_}), all(DataType::i32, {count_ * size_});
    fill(mine, count_);
    ASSERT_EQ(run(plan_of(Verb::allgather), rank_, mine.segments(), all.segments(), 0), Progress::done);
    for (std::int64_t at = 0; at < count_ * size_; ++at)
      ASSERT_EQ(all.parts()[0][static_cast<std::size_t>(at)], at / count_ + round_);
  }
  void reduce_and_scatter() {
    Numbers all(DataType::i32, {count_}), mine(DataType::i32, {share_of(count_, Seat{me_}, size_).count()});
    fill(all, count_);
    ASSERT_EQ(run(plan_of(Verb::reduce_scatter), rank_, all.segments(), mine.segments(), 0), Progress::done);
    for (std::int32_t value : mine.values()) ASSERT_EQ(value, sum_of_all());
  }
  void exchange() {
    // Each pair sends nothing, so little that it travels beside its size, one piece, or many pieces. Both directions
    // may differ.
    std::uint64_t kind = random_() % 4;
    std::vector<std::int64_t> sent, received;
    for (int from = 0; from < size_; ++from)
      for (int to = 0; to < size_; ++to) {
        constexpr std::int64_t lengths[] = {0, 20, 3000, 60'000};
        std::int64_t count = lengths[kind == 3 ? random_() % std::size(lengths) : kind] + to;
        if (from == me_) sent.push_back(count);
        if (to == me_) received.push_back(count);
      }
    Numbers in(DataType::i32, sent), out(DataType::i32, received);
    for (std::size_t to = 0; to < sent.size(); ++to)
      for (std::size_t at = 0; at < in.parts()[to].size(); ++at) in.parts()[to][at] = value_of(me_, to, at);
    Task& task = plan_of(Verb::alltoall);
    task.resize(sent, received);
    ASSERT_EQ(run(task, rank_, in.segments(), out.segments(), 0), Progress::done);
    for (std::size_t from = 0; from < received.size(); ++from)
      for (std::size_t at = 0; at < out.parts()[from].size(); ++at)
        ASSERT_EQ(out.parts()[from][at], value_of(static_cast<int>(from), static_cast<std::size_t>(me_), at));
  }
  std::int32_t value_of(int from, std::size_t to, std::size_t at) const {
    return round_ * 1000 + from * 100 + static_cast<std::int32_t>(to * 10 + at % 7);
  }

  RankThread& rank_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Link> link_;
  const int size_, me_;
  std::vector<std::unique_ptr<Task>> plans_, broadcasts_;  // plans_ by verb, broadcasts_ by root
  std::mt19937_64 random_{99};
  int round_ = 0;
  std::int64_t count_ = 0;
};

// The verbs run one after another through the same slots and slabs.
TEST_P(ShmRanks, run_all_verbs_mixed_for_a_long_time) {
  run_ranks({GetParam()}, [](RankThread& rank) {
    MixedVerbs verbs(rank);
    for (int round = 0; round < (testing::is_sanitized ? 60 : 600); ++round) {
      verbs.run_round(round);
      if (::testing::Test::HasFailure()) return;
    }
  });
}

TEST(Shm, has_room_in_half_a_slab_for_a_piece_of_every_seat_however_small_the_chunks) {
  Config config;
  config.slab_chunk_bytes = 1;  // this value is too small, so the minimum is used
  for (int seats : {1, 2, 256, 257, 1000, 4000})
    EXPECT_GE(shm::shape_for(seats, config).slab_bytes / 2, static_cast<std::size_t>(seats) * shm::least_piece_bytes);
}

TEST(Shm, runs_tasks_of_one_link_in_the_order_of_their_restarts) {
  run_ranks({2}, [](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    auto first = link->native()->plan(Collective{}), second = link->native()->plan(Collective{});
    for (int round = 0; round < 50; ++round) {
      Tensors<float> a(DataType::f32, {100'000}), b(DataType::f32, {10});
      a.fill(std::vector<float>(100'000, 1.0F));
      b.fill(std::vector<float>(10, 2.0F));
      first->restart(a.segments(), a.segments(), Sequence{0});
      second->restart(b.segments(), b.segments(), Sequence{1});
      EXPECT_EQ(second->step(), Progress::pending);  // the first one's turn comes before
      ASSERT_EQ(testing::drive(*first, rank.wake), Progress::done);
      ASSERT_EQ(testing::drive(*second, rank.wake), Progress::done);
      EXPECT_EQ(a.values().back(), 2.0F);
      EXPECT_EQ(b.values().back(), 4.0F);
    }
  });
}

// Magnitudes over 30 decades: any other order of additions would show.
TEST(Shm, gives_the_same_bits_whatever_the_composition_of_the_batches) {
  constexpr int tensors = 60;
  std::vector<std::vector<std::vector<float>>> results(4);  // the results of each rank and tensor
  run_ranks({4}, [&results](RankThread& rank) {
    auto transport = shm_for(rank.surroundings);
    auto link = connect_all(*transport, rank);
    Collective collective;
    collective.postscale = 1.0 / 3;
    auto task = link->native()->plan(collective);
    std::mt19937_64 mine(static_cast<std::uint64_t>(rank.rank().value)), shared(7);
    std::vector<std::vector<float>> gradients;
    for (int i = 0; i < tensors; ++i) {
      std::vector<float> gradient(i == 13 ? 100'000 : shared() % 3000);
      for (float& value : gradient) {
        double decade = static_cast<double>(mine() % 3001) / 100.0 - 15.0;
        value = static_cast<float>((mine() % 2 == 0 ? 1.0 : -1.0) * std::pow(10.0, decade));
      }
      gradients.push_back(std::move(gradient));
    }
    auto& first = results[static_cast<std::size_t>(rank.rank().value)];
    for (int shuffle = 0; shuffle < 50; ++shuffle) {
      rank.note("shuffle " + std::to_string(shuffle));
      std::vector<std::vector<float>> values = gradients;
      std::vector<std::size_t> order(tensors);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), shared);
      for (std::size_t at = 0; at < order.size();) {  // batches of 1 to 20 tensors
        std::vector<Segment> batch;
        for (std::size_t left = 1 + shared() % 20; left > 0 && at < order.size(); --left) {
          auto& tensor = values[order[at++]];
          batch.push_back({TensorView{tensor.data(), static_cast<std::int64_t>(tensor.size()), DataType::f32}});
        }
        ASSERT_EQ(run(*task, rank, batch, batch, 0), Progress::done);
      }
      if (shuffle == 0) first = values;
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(0, std::memcmp(values[i].data(), first[i].data(), values[i].size() * sizeof(float)));
      }
    }
  });
  for (std::size_t rank = 1; rank < results.size(); ++rank) {
    for (std::size_t i = 0; i < results[0].size(); ++i) {
      ASSERT_EQ(0, std::memcmp(results[rank][i].data(), results[0][i].data(), results[0][i].size() * sizeof(float)));
    }
  }
}

// Three of the four tensors of a batch are in memory that all ranks can read. In one round the last tensor is there
// only on some ranks. Each rank lacks its tensors once.
TEST(Shm, reduces_tensors_in_shared_regions_like_all_others) {
  run_ranks({4}, [](RankThread& rank) {
    int me = rank.rank().value;
    constexpr std::size_t part = 1 << 20;
    auto regions = std::make_shared<shm::SharedRegions>();
    regions->add(*rank.hub->share_memory("region", 4 * part), part, me);
    rank.surroundings.offer<transport::shm::SharedRegions>(regions);
    auto transport = shm_for(rank.surroundings);
    auto everyone = connect_all(*transport, rank);
    Group odd{{Rank{1}, Rank{3}}, Seat{me == 1 ? 0 : me == 3 ? 1 : -1}};
    std::unique_ptr<Link> pair;
    if (odd.has_me()) {
      auto connecting = transport->connect(odd, "odd", rank.exchange);
      ASSERT_EQ(testing::drive(**connecting, rank.wake), Progress::done);
      pair = (*connecting)->take();
    }
    auto* mine = reinterpret_cast<float*>(regions->at({0, 0}, me));
    std::vector<float> elsewhere(50'000);
    auto check = [&](Link& link, bool is_elsewhere, int joined = -1) {
      auto task = link.native()->plan(Collective{});
      std::vector<Segment> batch;
      for (std::int64_t i = 0; i < 4; ++i) {
        float* data = i == 3 && is_elsewhere ? elsewhere.data() : mine + i * 60'000;
        batch.push_back({TensorView{data, 50'000 - i, DataType::f32}});
        for (std::int64_t k = 0; k < 50'000 - i; ++k) data[k] = static_cast<float>(me + k % 13);
      }
      std::vector<Segment> given = batch;
      for (Segment& segment : given)
        if (me == joined) segment.view.data = nullptr;
      ASSERT_EQ(run(*task, rank, given, given, 0), Progress::done);
      if (me == joined) return;
      int sum = 0, ranks = 0;
      for (Rank member : link.group().ranks)
        if (member.value != joined) sum += member.value, ++ranks;
      for (const Segment& segment : batch) {
        const auto* data = static_cast<const float*>(segment.view.data);
        for (std::int64_t k = 0; k < segment.view.count; ++k) {
          ASSERT_EQ(data[k], static_cast<float>(sum + k % 13 * ranks));
        }
      }
    };
    for (int round = 0; round < 4; ++round) {
      check(*everyone, round == 2 && me % 2 == 0);
      check(*everyone, false, round);
      if (pair != nullptr) check(*pair, false);
    }
  });
}

TEST(Shm, names_the_seat_that_a_task_waits_for_and_fails_it_on_abort) {
  for (std::int64_t count : {1, 100'000}) {
    Couple couple;
    auto task = couple.left_link->native()->plan(Collective{});
    Tensors<float> tensors(DataType::f32, {count});
    task->restart(tensors.segments(), tensors.segments(), Sequence{0});
    ASSERT_EQ(task->step(), Progress::pending);
    EXPECT_EQ(task->waiting_for(), Seat{1});
    couple.left_link->abort(Error(ErrorCode::peer_lost, "rank 1 ended"));
    ASSERT_EQ(task->step(), Progress::failed);
    EXPECT_EQ(task->failure().message, "rank 1 ended");
  }
}

TEST(Shm, fails_a_task_when_a_rank_that_is_a_thread_dies) {
  Couple couple;
  auto task = couple.left_link->native()->plan(Collective{});
  Tensors<float> tensors(DataType::f32, {5});
  task->restart(tensors.segments(), tensors.segments(), Sequence{0});
  ASSERT_EQ(task->step(), Progress::pending);
  couple.ensemble.hub->kill(Rank{1});
  ASSERT_EQ(task->step(), Progress::failed);
  EXPECT_EQ(task->failure().code, ErrorCode::peer_lost);
}

}  // namespace
}  // namespace hvd::transport
