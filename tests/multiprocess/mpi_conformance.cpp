// The transport mpi with real processes and a real MPI. `mpiexec -n 4 mpi_conformance 2,2` runs four ranks as if on two
// nodes. Every process runs the same tests in the same order, and checks its own results.
#include <gtest/gtest.h>
#include <sched.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "base/log.hpp"
#include "base/reduce_op.hpp"
#include "collectives/registry.hpp"
#include "conformance/exercise.hpp"
#include "connections/mpi_peers.hpp"
#include "transport/mpi/link.hpp"

namespace hvd {
namespace {

using testing::Exercise;
using testing::exercise;
using testing::Part;

// The MPI of this process, and the world that the command line makes of all processes.
struct Place {
  mpi::Process* process = nullptr;
  World world;
  Config config;
  posix::WaitWord wake;
  transport::Surroundings surroundings;
};
Place* place = nullptr;

template <typename Step>
Progress step_until_done(Step step) {
  Deadline deadline = Deadline::after(std::chrono::seconds(30));
  for (;;) {
    Progress progress = step();
    if (progress != Progress::pending) return progress;
    if (deadline.passed()) {
      ADD_FAILURE() << "rank " << place->world.rank.value << " waits forever";
      return Progress::failed;
    }
    ::sched_yield();
  }
}

// Makes a communicator of all processes, in which the seats are the ranks.
std::unique_ptr<mpi::Communicator> everybody(const char* name) {
  auto made = place->surroundings.ask<connections::MpiPeers>()->connect(testing::everybody(place->world), name);
  if (!made) ADD_FAILURE() << made.error().message;
  return std::move(*made);
}

class OneOfMany final : public testing::Performers {
 public:
  explicit OneOfMany(const char* name) {
    auto chosen = collectives::Selector::make(place->config);
    selector_ = std::move(*chosen);
    testing::Ensemble unused(place->world);
    topology::Layout layout = topology::layout_of(place->world);
    connect(world_, layout.world, std::string("world-") + name);
    if (layout.nodes == 1) return;
    world_.nodes = layout.nodes;
    world_.rails = layout.rails;
    node_of_ = layout.node_of;
    world_.node_of = node_of_;
    world_.node = &node_;
    connect(node_, layout.node, std::string("node-") + name);
    if (!layout.rail.has_me()) return;
    world_.rail = &rail_;
    connect(rail_, layout.rail, std::string("rail-") + name);
  }
  ~OneOfMany() override { abort(); }

  int size() const override { return world_.size(); }
  bool is_here(int rank) const override { return rank == place->world.rank.value; }
  collectives::Team& team() override { return world_; }
  Tasks plan(const collectives::Algorithm& algorithm, const Collective& collective) override {
    Tasks tasks(static_cast<std::size_t>(size()));
    tasks[mine()] = algorithm.plan(collective, world_);
    return tasks;
  }
  Progress run(Tasks& tasks, const std::vector<Part>& parts) override {
    testing::restart(*tasks[mine()], parts[mine()], Sequence{sequence_++});
    return step_until_done([&] { return tasks[mine()]->step(); });
  }
  void abort() override {
    for (auto& link : links_) link->abort({ErrorCode::shut_down, "the test is over"});
  }

 private:
  static std::size_t mine() { return static_cast<std::size_t>(place->world.rank.value); }
  void connect(collectives::Team& team, const Group& group, const std::string& name) {
    team.group = group;
    team.selector = selector_.get();
    if (group.size() == 1) return;
    for (const transport::Maker& maker : transport::registry()) {
      if (std::string_view(maker.name) != "mpi") continue;
      auto transport = maker.make(place->surroundings);
      ASSERT_TRUE(transport->reaches(group, DeviceKind::host));
      testing::BlackboardExchange no_exchange(nullptr, place->world.rank);
      auto connecting = transport->connect(group, name, no_exchange);
      ASSERT_TRUE(connecting) << connecting.error().message;
      ASSERT_EQ(step_until_done([&] { return (*connecting)->step(); }), Progress::done)
          << (*connecting)->failure().message;
      links_.push_back((*connecting)->take());
      team.link = links_.back().get();
    }
  }

  std::unique_ptr<collectives::Selector> selector_;
  collectives::Team world_, node_, rail_;
  std::vector<std::int32_t> node_of_;
  std::vector<std::unique_ptr<transport::Link>> links_;
  std::uint64_t sequence_ = 1;
};

// `alone` is for one rank, and `staged` is for the memory of a device.
bool carries_host_memory_between_ranks(const collectives::Maker& maker) {
  return std::string_view(maker.name) != "alone" && std::string_view(maker.name) != "staged";
}

template <typename Body>
void for_every_algorithm(Body body, std::string_view only = "") {
  for (const collectives::Maker& maker : collectives::registry()) {
    if (!only.empty() && only != maker.name) continue;
    OneOfMany ranks(maker.name);
    auto algorithm = maker.make();
    int exercised = 0;
    for (const VerbRow& row : verbs()) {
      const Verb verb = row.verb;
      if (!algorithm->does(verb)) continue;
      body(ranks, verb, [&](const Exercise& what, int batches) {
        exercised += exercise(ranks, *algorithm, verb, what, batches);
        return !::testing::Test::HasFailure();
      });
      if (::testing::Test::HasFailure()) return;
    }
    bool is_possible = carries_host_memory_between_ranks(maker);
    if (std::string_view(maker.name) == "hierarchical") is_possible = ranks.team().node != nullptr;
    if (std::string_view(maker.name) == "adasum")
      is_possible = std::has_single_bit(static_cast<unsigned>(ranks.size()));
    EXPECT_EQ(exercised > 0, is_possible) << maker.name;
  }
}

TEST(OverMpi, every_algorithm_type_and_size_gives_what_the_reference_gives) {
  for_every_algorithm([](testing::Performers& ranks, Verb verb, auto run) {
    std::vector<DataType> dtypes = {DataType::boolean, DataType::u8, DataType::bf16, DataType::i64, DataType::f32};
    if (ranks.size() == 2) dtypes = testing::every_data_type();  // the type only chooses a kernel
    for (DataType dtype : dtypes)
      for (std::int64_t count : {0, 1, 7, 4096})
        for (bool in_place : {false, true}) {
          Exercise what;
          what.dtype = dtype;
          what.count = count;
          what.in_place = in_place;
          what.segments = in_place ? 1 : 5;
          what.root = ranks.size() - 1;
          if (verb == Verb::barrier && (count > 0 || in_place)) continue;
          if (!run(what, 1)) return;
        }
  });
}

TEST(OverMpi, every_operation_scale_root_share_and_joined_rank_gives_what_the_reference_gives) {
  for_every_algorithm([](testing::Performers& ranks, Verb verb, auto run) {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      Exercise what;
      what.count = 1000 + rank;
      what.segments = 4;
      what.root = rank;
      what.even_counts = true;
      if (verb == Verb::allreduce) what.joined = rank;
      if (!run(what, 2)) return;
    }
    for (auto lacks : {Exercise::Lacks::both, Exercise::Lacks::input, Exercise::Lacks::output}) {
      Exercise what;
      what.count = 200'003;
      what.segments = 5;
      what.joined = ranks.size() - 1;
      what.lacks = lacks;
      what.prescale = 2.0;
      what.postscale = 0.5;
      if (reduces(verb) && !run(what, 2)) return;
    }
    for (std::size_t at = 0; at < reduce_op_count; ++at)
      for (DataType dtype : {DataType::i32, DataType::f32, DataType::boolean}) {
        const auto op = static_cast<ReduceOp>(at);
        Exercise what;
        what.dtype = dtype;
        what.op = op;
        what.count = 1003;
        what.segments = 3;
        if (op == ReduceOp::sum && dtype != DataType::boolean) {
          what.prescale = 2.0;
          what.postscale = 0.5;
        }
        if (reduces(verb) && !run(what, 1)) return;
      }
  });
}

TEST(OverMpi, batches_of_several_megabytes_give_what_the_reference_gives) {
  for (const char* algorithm : {"native", "halving_doubling", "tree", "hierarchical"})
    for_every_algorithm(
        [](testing::Performers& ranks, Verb verb, auto run) {
          Exercise what;
          what.dtype = DataType::f64;
          what.count = 600'003;  // more than one step of MPI's own collectives
          what.segments = 30;
          what.root = ranks.size() / 2;
          if (verb != Verb::barrier) run(what, 1);
        },
        algorithm);
}

TEST(OverMpi, exchanges_more_than_2_to_the_31_elements_slow) {
  OneOfMany ranks("giants");
  if (ranks.size() != 2) GTEST_SKIP() << "takes two ranks";
  for (const collectives::Maker& maker : collectives::registry())
    if (auto algorithm = maker.make(); algorithm->does(Verb::alltoall) && carries_host_memory_between_ranks(maker))
      testing::exchange_giants(ranks, *algorithm);
}

// ---- messages ----

class Messages : public ::testing::Test {
 protected:
  void SetUp() override {
    if (size < 2) GTEST_SKIP() << "takes two ranks";
  }
  std::unique_ptr<transport::Link> link(const char* name, std::size_t piece_bytes) {
    return std::make_unique<transport::over_mpi::MpiLink>(place->surroundings, testing::everybody(place->world),
                                                          everybody(name), piece_bytes);
  }
  Progress wait(transport::Link& over, transport::Pending pending) {
    return step_until_done([&] { return over.poll(pending); });
  }

  const int size = place->world.size(), me = place->world.rank.value;
};

TEST_F(Messages, larger_than_one_mpi_message_arrive_whole) {
  auto over = link("pieces", 1000);
  Seat next{(me + 1) % size}, previous{(me + size - 1) % size};
  for (std::size_t bytes : {0, 1, 999, 1000, 1001, 3000, 123'457}) {
    Buffer mine(bytes), theirs(bytes);
    for (std::size_t i = 0; i < bytes; ++i) mine[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(me));
    auto received = over->recv(previous, theirs, {Sequence{bytes}, 0, 1});
    auto sent = over->send(next, mine, {Sequence{bytes}, 0, 1});
    ASSERT_EQ(wait(*over, received), Progress::done) << over->failure().message;
    ASSERT_EQ(wait(*over, sent), Progress::done);
    for (std::size_t i = 0; i < bytes; ++i)
      ASSERT_EQ(theirs[i], static_cast<std::byte>(i * 31 + static_cast<std::size_t>(previous.value))) << i;
  }
}

TEST_F(Messages, are_matched_by_channel_whatever_their_order) {
  auto over = link("channels", 1 << 20);
  Seat next{(me + 1) % size}, previous{(me + size - 1) % size};
  std::vector<std::uint32_t> out(24), in(24);
  std::vector<transport::Pending> pending;
  auto channel = [](std::size_t i) {
    return Channel{Sequence{5 + i % 2}, static_cast<std::uint16_t>(i / 2 % 3), static_cast<std::uint32_t>(i / 6)};
  };
  auto bytes_of = [](std::uint32_t& number) { return std::as_writable_bytes(std::span(&number, 1)); };
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::uint32_t>(i * 100) + static_cast<std::uint32_t>(me);
    pending.push_back(over->send(next, bytes_of(out[i]), channel(i)));
  }
  for (std::size_t i = in.size(); i-- > 0;) pending.push_back(over->recv(previous, bytes_of(in[i]), channel(i)));
  EXPECT_TRUE(over->needs_polling());
  for (auto each : pending) ASSERT_EQ(wait(*over, each), Progress::done);
  EXPECT_FALSE(over->progresses_only_when_polled());
  for (std::size_t i = 0; i < in.size(); ++i)
    EXPECT_EQ(in[i], i * 100 + static_cast<std::uint32_t>(previous.value)) << i;
}

TEST_F(Messages, need_no_polling_some_time_after_the_last_has_ended) {
  auto over = link("rest", 1 << 20);
  Seat next{(me + 1) % size}, previous{(me + size - 1) % size};
  std::byte mine{1}, theirs{0};
  auto received = over->recv(previous, {&theirs, 1}, {});
  auto sent = over->send(next, {&mine, 1}, {});
  EXPECT_TRUE(over->needs_polling());
  ASSERT_EQ(wait(*over, received), Progress::done);
  ASSERT_EQ(wait(*over, sent), Progress::done);
  int looks = 0;
  while (over->needs_polling() && looks < 10000) ++looks;
  EXPECT_GT(looks, 0);
  EXPECT_LT(looks, 10000);
  EXPECT_FALSE(over->needs_polling());
}

TEST_F(Messages, of_another_length_than_expected_are_an_error_that_names_the_sender) {
  for (std::size_t sent_bytes : {3u, 300u}) {
    auto over = link(sent_bytes == 3 ? "short" : "long", 1 << 20);
    Buffer bytes(sent_bytes), into(100);
    if (me == 1) {
      auto sent = over->send(Seat{0}, bytes, {});
      (void)wait(*over, sent);
    }
    if (me == 0) {
      auto received = over->recv(Seat{1}, into, {});
      ASSERT_EQ(wait(*over, received), Progress::failed);
      EXPECT_EQ(over->failure().code, ErrorCode::mismatch) << over->failure().message;
      EXPECT_NE(over->failure().message.find("100 bytes"), std::string::npos) << over->failure().message;
      EXPECT_NE(over->failure().message.find("rank 1"), std::string::npos) << over->failure().message;
    }
    over->abort({ErrorCode::shut_down, "the test is over"});
  }
}

TEST_F(Messages, that_were_aborted_touch_nothing_any_more) {
  auto over = link("aborted", 1 << 20);
  auto after = link("after", 1 << 20);
  Buffer into(1000, std::byte{7}), sent_bytes(1000, std::byte{9});  // short: MPI stores them itself
  if (me == 0) {
    auto never = over->recv(Seat{1}, into, {Sequence{1}, 0, 0});
    auto under_way = over->send(Seat{1}, sent_bytes, {Sequence{2}, 0, 0});
    over->abort({ErrorCode::shut_down, "the end of the test"});
    EXPECT_EQ(over->poll(never), Progress::failed);
    EXPECT_EQ(over->failure().message, "the end of the test");
    EXPECT_FALSE(over->needs_polling());
    (void)under_way;
  }
  if (me == 1) {
    ASSERT_EQ(wait(*over, over->recv(Seat{0}, into, {Sequence{2}, 0, 0})), Progress::done);
  }
  // Rank 1 sends the awaited message only now. Its next message on the other link arrives later, so the first is here
  // by then.
  std::byte token{1};
  if (me == 0) {
    ASSERT_EQ(wait(*after, after->send(Seat{1}, {&token, 1}, {})), Progress::done);
  }
  if (me == 1) {
    ASSERT_EQ(wait(*after, after->recv(Seat{0}, {&token, 1}, {})), Progress::done);
    (void)over->send(Seat{0}, sent_bytes, {Sequence{1}, 0, 0});
    ASSERT_EQ(wait(*after, after->send(Seat{0}, {&token, 1}, {Sequence{1}, 0, 0})), Progress::done);
    over->abort({ErrorCode::shut_down, "the test is over"});
  }
  if (me == 0) {
    ASSERT_EQ(wait(*after, after->recv(Seat{1}, {&token, 1}, {Sequence{1}, 0, 0})), Progress::done);
    for (std::byte each : into) ASSERT_EQ(each, std::byte{7});
  }
}

TEST_F(Messages, of_more_than_two_gigabytes_arrive_whole_slow) {
  auto over = link("giant", transport::over_mpi::most_piece_bytes);
  std::size_t bytes = (std::size_t{1} << 31) + 4097;
  if (me == 0) {
    std::vector<std::uint64_t> numbers(bytes / 8 + 1);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = i * 2654435761u;
    auto sent = over->send(Seat{1}, std::as_bytes(std::span(numbers)).first(bytes), {});
    ASSERT_EQ(wait(*over, sent), Progress::done);
  }
  if (me == 1) {
    std::vector<std::uint64_t> numbers(bytes / 8 + 1);
    auto received = over->recv(Seat{0}, std::as_writable_bytes(std::span(numbers)).first(bytes), {});
    ASSERT_EQ(wait(*over, received), Progress::done) << over->failure().message;
    for (std::size_t i = 0; i < bytes / 8; ++i) ASSERT_EQ(numbers[i], i * 2654435761u) << i;
  }
}

// "2,2": the number of ranks of each node.
std::vector<int> shape_of(const std::string& text) {
  std::vector<int> shape;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) shape.push_back(std::atoi(part.c_str()));
  return shape;
}

int run(int count, char** words) {
  ::testing::InitGoogleTest(&count, words);
  if (count != 2) {
    std::fprintf(stderr, "usage: mpiexec -n N mpi_conformance RANKS_PER_NODE,…   (with HOROVOD_MPI=abi)\n");
    return 2;
  }
  place = new Place;
  place->config.mpi = std::getenv("HOROVOD_MPI") != nullptr ? std::getenv("HOROVOD_MPI") : "";
  auto process = mpi::Process::open(Environment::of_this_process(), place->config);
  if (!process || !(*process)->start(Environment::of_this_process(), place->config)) {
    std::fprintf(stderr, "%s\n", process ? "MPI does not start" : process.error().message.c_str());
    return 1;
  }
  place->process = *process;
  auto base = place->process->calls().world();
  place->world = testing::made_up_world(shape_of(words[1]));
  place->world.rank = Rank{(*base)->rank()};
  if ((*base)->size() != place->world.size()) {
    std::fprintf(stderr, "MPI knows %d processes, expected %d\n", (*base)->size(), place->world.size());
    return 1;
  }
  std::vector<int> ranks(static_cast<std::size_t>(place->world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (place->world.rank == Rank{0})
    std::cout << "over " << place->process->calls().version() << ", " << mpi::name_of(place->process->level()) << "\n";
  else
    delete ::testing::UnitTest::GetInstance()->listeners().Release(
        ::testing::UnitTest::GetInstance()->listeners().default_result_printer());
  place->surroundings.world = &place->world;
  place->surroundings.config = &place->config;
  place->surroundings.wake = &place->wake;
  place->surroundings.offer<connections::MpiPeers>(
      std::make_shared<connections::MpiPeers>(place->process->calls(), std::move(*base), std::move(ranks), true));
  int failed = RUN_ALL_TESTS();
  // The other processes may wait for this one. Therefore end them, too.
  if (failed != 0) {
    std::fflush(nullptr);
    std::_Exit(failed);
  }
  return 0;
}

}  // namespace
}  // namespace hvd

int main(int count, char** words) {
  return hvd::run(count, words);
}
