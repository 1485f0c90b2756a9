// Whole runtimes, one per thread: what they refuse, and how their errors name what is wrong.
#include "runtime/runtime.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <limits>
#include <optional>
#include <utility>

#include "runtime_rig.hpp"
#include "sanitized.hpp"

namespace hvd::runtime {
namespace {

using testing::Ensemble;
using testing::parts;
using testing::RankThread;
using testing::Rig;
using testing::run_ranks;
using testing::sums;
using testing::ThreeRanks;
using testing::with_runtimes;

TEST(Runtime, refuses_tensors_in_memory_that_it_has_no_device_for_and_goes_on) {
  for (const std::vector<int>& shape : {std::vector{1}, {3}, {2, 2}}) {
    Ensemble ensemble(testing::made_up_world(shape));
    with_runtimes(ensemble, [&](Rig& rig, int rank) {
      const int ranks = rig.runtime->world().size();
      for (int round = 0; round < 3; ++round) {
        for (Verb verb : {Verb::allreduce, Verb::allgather, Verb::broadcast}) {
          std::vector<float> data(10);
          Rig::Use use{Rig::floats(10), name_of(verb), data.data(), data.data(), 10};
          use.signature.verb = verb;
          use.signature.device = DeviceKind::cuda;
          auto refused = rig.start({use});
          ASSERT_FALSE(refused);
          const std::string& error = refused.error().message;
          EXPECT_NE(error.find(name_of(verb)), std::string::npos) << error;
          EXPECT_NE(error.find("cuda memory, for which this rank has no device"), std::string::npos) << error;
        }
        auto data = parts(rank, 100);
        EXPECT_EQ(rig.allreduce("on the host", data), "");
        EXPECT_EQ(data, sums(ranks, 100));
      }
    });
  }
}

TEST(Runtime, refuses_a_shape_whose_bytes_64_bits_cannot_count) {
  Ensemble ensemble(testing::made_up_world({1}));
  with_runtimes(ensemble, [&](Rig& rig, int) {
    constexpr std::int64_t large = std::int64_t{1} << 32;
    Signature signature;
    for (std::vector<std::int64_t> shape : {std::vector{large, large}, {large, large / 4}, {large, 3, large}}) {
      signature.shape = shape;
      auto refused = rig.runtime->prepare("large", signature);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
      EXPECT_NE(refused.error().message.find("64 bits"), std::string::npos) << refused.error().message;
    }
    signature.shape = {large, large, 0};  // no elements, although the other dimensions are large
    auto empty = rig.runtime->prepare("empty", signature);
    ASSERT_TRUE(empty);
    EXPECT_EQ((*empty)->count, 0);
    signature.verb = Verb::allgather;
    signature.shape = {0, large, large};
    EXPECT_FALSE(rig.runtime->prepare("rows", signature));
  });
}

TEST(Runtime, fails_a_gather_whose_result_64_bits_cannot_count_and_goes_on) {
  Ensemble ensemble(testing::made_up_world({2}));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    Signature signature;
    signature.verb = Verb::allgather;
    signature.shape = {0, 2};
    float nothing = 0;
    auto handle =
        rig.start({{signature, "rows", &nothing, nullptr, std::numeric_limits<std::int64_t>::max() / 2 + rank}});
    ASSERT_TRUE(handle);
    EXPECT_NE(rig.finish(*handle).find("64 bits"), std::string::npos);
    auto data = parts(rank, 7);
    EXPECT_EQ(rig.allreduce("a", data), "");
    EXPECT_EQ(data, sums(2, 7));
  });
}

TEST_P(ThreeRanks, end_for_a_tensor_that_one_of_them_never_submits_whatever_else_moves) {
  Ensemble ensemble(testing::made_up_world(GetParam()));
  // Every operation that waits this long is reported. Under a sanitizer others than "lonely" could wait as long.
  ensemble.config.stall_shutdown_time_s = testing::is_sanitized ? 4 : 0.3;
  for (Member& member : ensemble.world.members) member.pid = ::getpid();  // a process that exists and runs
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    auto data = parts(rank, 3);
    std::optional<Handles::Number> lonely;
    if (rank != 1) {
      auto handle = rig.start({{Rig::floats(3), "lonely", data.data(), data.data()}});
      ASSERT_TRUE(handle);
      lonely = *handle;
    }
    std::string text;
    for (std::vector<float> busy = parts(rank, 5); text.empty(); busy = parts(rank, 5))
      text = rig.allreduce("busy", busy);
    if (lonely) {
      EXPECT_EQ(rig.finish(*lonely), text);
    }
    EXPECT_NE(text.find("\n1!: [lonely]"), std::string::npos) << text;
    EXPECT_EQ(text.find("busy"), std::string::npos) << text;
    EXPECT_EQ(rig.runtime->ended()->id, "HVD2201") << "on all ranks, whichever has found it";
  });
}

TEST_P(ThreeRanks, fails_a_mismatch_on_every_rank_and_goes_on) {
  Ensemble ensemble(testing::made_up_world(GetParam()));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    auto data = parts(rank, rank == 1 ? 5 : 4);
    EXPECT_NE(rig.allreduce("a", data).find("Mismatched allreduce tensor shapes"), std::string::npos);
    auto good = parts(rank, 4);
    EXPECT_EQ(rig.allreduce("a", good), "");
    EXPECT_EQ(good, sums(3, 4));
    // The same name with another shape on all ranks is a change, not a mistake.
    auto changed = parts(rank, 9);
    EXPECT_EQ(rig.allreduce("a", changed), "");
    EXPECT_EQ(changed, sums(3, 9));
  });
}

TEST(Runtime, refuses_to_start_beyond_the_limit_of_handles_and_goes_on_when_some_are_released) {
  Ensemble ensemble(testing::made_up_world({2}));
  run_ranks(ensemble, [&](RankThread& thread) {
    Runtime::Parts parts;
    parts.world = ensemble.world;
    parts.world.rank = thread.rank();
    parts.threads = ensemble.hub;
    parts.most_handles = 256;
    Rig rig(std::move(parts));
    float data = 1;
    std::vector<Handles::Number> held;
    for (int i = 0; i < 256; ++i) {
      auto started = rig.start({{Rig::floats(1), "gradient", &data, &data}});
      ASSERT_TRUE(started) << started.error().message;
      HandleCell* cell = rig.runtime->find(*started);
      EXPECT_TRUE(rig.runtime->wait(*cell, Deadline::after(std::chrono::seconds(60))));
      held.push_back(*started);
    }
    for (int i = 0; i < 2; ++i) {  // also the second time, so the first one has left the name free
      auto refused = rig.start({{Rig::floats(1), "gradient", &data, &data}});
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
      EXPECT_EQ(refused.error().message,
                "'gradient' cannot be started: 256 handles are held, which is the limit; release handles whose "
                "operations are done (hvd_release)");
    }
    // What the runtime starts on its own is refused, too, and leaves no operation behind.
    const std::size_t operations = rig.runtime->operations();
    EXPECT_EQ(rig.runtime->add_process_set({Rank{0}}).error().code, ErrorCode::out_of_memory);
    for (int i = 0; i <= thread.rank().value; ++i)  // one rank tries more often than the other
      EXPECT_EQ(rig.runtime->allocate_shared(8).error().code, ErrorCode::out_of_memory);
    EXPECT_EQ(rig.runtime->operations(), operations);
    for (Handles::Number number : held) rig.finish(number);
    std::vector<float> more = {1};
    EXPECT_EQ(rig.allreduce("gradient", more), "");
    EXPECT_EQ(more[0], 2);
    EXPECT_TRUE(rig.runtime->allocate_shared(8));
  });
}

TEST(Runtime, refuses_a_name_that_is_in_flight_and_the_first_one_still_completes) {
  Ensemble ensemble(testing::made_up_world({2}));
  std::atomic<bool> refused{false};
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    auto data = parts(rank, 4), other = parts(rank, 4);
    if (rank == 0) {
      auto first = rig.start({{Rig::floats(4), "a", data.data(), data.data()}});
      ASSERT_TRUE(first);
      auto second = rig.start(
          {{Rig::floats(4), "b", other.data(), other.data()}, {Rig::floats(4), "a", other.data(), other.data()}});
      ASSERT_FALSE(second);
      EXPECT_EQ(second.error().code, ErrorCode::invalid_argument);
      EXPECT_NE(second.error().message.find("in flight"), std::string::npos);
      refused = true;
      refused.notify_all();
      EXPECT_EQ(rig.finish(*first), "");
    } else {
      refused.wait(false);
      EXPECT_EQ(rig.allreduce("a", data), "");
    }
    EXPECT_EQ(data, sums(2, 4));
    // The refused group has left nothing behind: the name can be used.
    EXPECT_EQ(rig.allreduce("b", other), "");
  });
}

TEST_P(ThreeRanks, fails_what_is_in_flight_when_another_rank_shuts_down) {
  Ensemble ensemble(testing::made_up_world({2}));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    auto data = parts(rank, 4);
    EXPECT_EQ(rig.allreduce("together", data), "");
    if (rank == 1) return;  // returning destroys the runtime of rank 1
    std::string text = rig.allreduce("alone", data);
    EXPECT_NE(text.find("Horovod has been shut down"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    text = rig.allreduce("later", data);
    EXPECT_NE(text.find("Horovod has been shut down"), std::string::npos) << text;
  });
}

TEST(Runtime, names_a_lost_peer_in_the_error_of_every_rank) {
  for (const std::vector<int>& shape : {std::vector{3}, {2, 2}, {1, 3, 2}, {1, 1, 2}}) {
    Ensemble ensemble(testing::made_up_world(shape));
    std::barrier all_did(ensemble.world.size());
    with_runtimes(ensemble, [&](Rig& rig, int rank) {
      auto data = parts(rank, 4);
      EXPECT_EQ(rig.allreduce("together", data), "");
      all_did.arrive_and_wait();
      auto handle = rig.start({{Rig::floats(4), "alone" + std::to_string(rank), data.data(), data.data()}});
      if (rank == rig.runtime->world().size() - 1) rig.runtime->report_lost(Rank{1});
      std::string text = handle ? rig.finish(*handle) : handle.error().message;
      std::string lost = "rank 1 (host " + ensemble.world.members[1].host + ", process 1001) ended or was killed";
      EXPECT_NE(text.find(lost), std::string::npos) << text;
    });
  }
}

TEST(Runtime, names_who_is_missing_when_a_start_takes_too_long) {
  Runtime::Parts parts;
  parts.config.network_interfaces = "lo";
  parts.world = testing::made_up_world({1, 1});
  parts.world.secret = "of the test";
  auto net = connections::NetListener::open(parts.config);
  ASSERT_TRUE(net);
  for (Member& member : parts.world.members) member.endpoints = net->endpoints();
  parts.net = std::move(*net);
  auto started = Runtime::start(std::move(parts), Deadline::after(std::chrono::milliseconds(20)));
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::timeout);
  EXPECT_NE(started.error().message.find("rank 1 (host n1, process 1001) has not connected yet to 127.0.0.1"),
            std::string::npos)
      << started.error().message;
}

TEST(Runtime, goes_on_when_a_rank_cannot_have_its_part_of_shared_memory) {
  Ensemble ensemble(testing::made_up_world({3}));
  with_runtimes(ensemble, [&](Rig& rig, int rank) {
    auto memory = rig.runtime->allocate_shared(rank == 1 ? 5'000 : 4'000);
    EXPECT_FALSE(memory);
    auto data = parts(rank, 7);
    EXPECT_EQ(rig.allreduce("a", data), "");
    EXPECT_EQ(data, sums(3, 7));
    memory = rig.runtime->allocate_shared(4'000);
    ASSERT_TRUE(memory) << memory.error().message;
    EXPECT_TRUE(rig.runtime->free_shared(*memory));
  });
}

}  // namespace
}  // namespace hvd::runtime
