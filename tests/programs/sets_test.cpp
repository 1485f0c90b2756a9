// The C functions that describe process sets, while other threads change the sets. The ranks are threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/runtime_of_c.hpp"
#include "ranks_as_threads.hpp"

namespace hvd::programs {
namespace {

std::unique_ptr<hvd_runtime> start(testing::Ensemble& ensemble, Rank rank) {
  runtime::Runtime::Parts parts;
  parts.world = ensemble.world;
  parts.world.rank = rank;
  parts.config = ensemble.config;
  parts.threads = ensemble.hub;
  auto started = runtime::Runtime::start(std::move(parts), Deadline::after(std::chrono::seconds(60)));
  if (!started) ADD_FAILURE() << started.error().message;
  return started ? std::make_unique<hvd_runtime>(std::move(*started)) : nullptr;
}

template <typename Sets>
concept ReadableWithoutAName = requires(Sets sets) {
  std::forward<Sets>(sets)->all();
};
static_assert(ReadableWithoutAName<runtime::CurrentSets&> && !ReadableWithoutAName<runtime::CurrentSets>);

TEST(ProcessSets, are_read_as_of_one_moment_while_another_thread_changes_them) {
  Config config;
  config.dynamic_process_sets = true;
  testing::Ensemble ensemble(testing::made_up_world({2}), config);
  testing::run_ranks(ensemble, [&](testing::RankThread& thread) {
    auto runtime = start(ensemble, thread.rank());
    if (runtime == nullptr) return;
    std::jthread reader([&](std::stop_token stop) {
      if (thread.rank() != Rank{0}) return;  // one that looks again and again takes a core
      while (!stop.stop_requested()) {
        int ids[8] = {}, ranks[2] = {7, 7}, size = 0;
        const int count = hvd_process_set_ids(runtime.get(), ids, 8);
        EXPECT_TRUE(count == 1 || (count == 2 && ids[1] == 1)) << count << " sets, of ids " << ids[0] << ", " << ids[1];
        EXPECT_EQ(ids[0], 0);
        if (hvd_process_set(runtime.get(), 1, nullptr, &size, ranks, 2) == HVD_OK) {
          EXPECT_EQ(std::pair(size, ranks[0]), std::pair(1, 1));
        }
      }
    });
    for (int round = 0; round < 100; ++round) {
      int id = 0;
      const int of_one = 1;
      EXPECT_EQ(hvd_add_process_set(runtime.get(), &of_one, 1, &id), HVD_OK) << hvd_last_error();
      EXPECT_EQ(hvd_remove_process_set(runtime.get(), id), HVD_OK) << hvd_last_error();
    }
  });
}

TEST(ProcessSets, that_do_not_exist_or_have_strangers_are_refused_in_words_about_sets) {
  Config config;
  config.dynamic_process_sets = true;
  testing::Ensemble ensemble(testing::made_up_world({2}), config);
  testing::run_ranks(ensemble, [&](testing::RankThread& thread) {
    auto runtime = start(ensemble, thread.rank());
    if (runtime == nullptr) return;
    for (int id : {-3, 7}) {
      EXPECT_EQ(hvd_remove_process_set(runtime.get(), id), HVD_INVALID_ARGUMENT);
      EXPECT_NE(std::string(hvd_last_error()).find("there is no process set " + std::to_string(id)), std::string::npos)
          << hvd_last_error();
    }
    std::vector<int> ranks(1000);
    std::iota(ranks.begin(), ranks.end(), 0);
    int id = 0;
    EXPECT_EQ(hvd_add_process_set(runtime.get(), ranks.data(), ranks.size(), &id), HVD_INVALID_ARGUMENT);
    EXPECT_STREQ(hvd_last_error(),
                 "a process set needs ranks from 0 to 1, each once; got [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, "
                 "14, 15, …], of which the highest is 999 [HVD2111]");
    EXPECT_STREQ(hvd_last_error_id(), "HVD2111");
  });
}

}  // namespace
}  // namespace hvd::programs
