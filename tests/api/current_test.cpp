// The current runtime of a process, which threads use that have no pointer to it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "api/patience.hpp"
#include "horovod.hpp"
#include "multiprocess/allreduce_of.hpp"

namespace {

using hvd::testing::patience_ms;

TEST(CurrentRuntime, is_there_between_init_and_shutdown_with_a_number_that_grows) {
  hvd_runtime* found = nullptr;
  std::uint64_t first = 0, second = 0;
  EXPECT_EQ(hvd_enter(&found, nullptr), HVD_NOT_INITIALIZED);
  EXPECT_NE(std::string(hvd_last_error()).find("has not been initialized"), std::string::npos) << hvd_last_error();
  for (std::uint64_t* generation : {&first, &second}) {
    hvd_runtime* made = nullptr;
    horovod::check(hvd_init(&made));
    EXPECT_EQ(hvd_enter(&found, generation), HVD_OK);
    EXPECT_EQ(found, made);
    hvd_leave(found);
    hvd_shutdown(made);
    EXPECT_EQ(hvd_enter(&found, nullptr), HVD_NOT_INITIALIZED);
    EXPECT_EQ(found, nullptr);
  }
  EXPECT_LT(first, second);
  EXPECT_EQ(hvd_enter(nullptr, nullptr), HVD_INVALID_ARGUMENT);
}

TEST(CurrentRuntime, stays_the_first_one_while_there_are_two) {
  horovod::Runtime first;
  {
    horovod::Runtime second;
    hvd_runtime* found = nullptr;
    horovod::check(hvd_enter(&found, nullptr));
    EXPECT_EQ(found, first.get());
    hvd_leave(found);
  }
  hvd_runtime* found = nullptr;
  horovod::check(hvd_enter(&found, nullptr));
  EXPECT_EQ(found, first.get());
  hvd_leave(found);
}

TEST(CurrentRuntime, ends_what_threads_wait_for_in_it_and_is_freed_when_they_have_left) {
  for (int round = 0; round < 20; ++round) {
    hvd_runtime* runtime = nullptr;
    horovod::check(hvd_init(&runtime));
    std::atomic<int> inside{0};
    std::vector<std::jthread> threads;
    for (int number = 0; number < 4; ++number)
      threads.emplace_back([&inside, name = "thread " + std::to_string(number)] {
        const std::int64_t count = 1;
        hvd_op_description description = hvd::testing::allreduce_of(name.c_str(), count, HVD_FLOAT32, HVD_SUM);
        for (bool is_first = true;; is_first = false) {
          hvd_runtime* mine = nullptr;
          if (const hvd_status status = hvd_enter(&mine, nullptr); status != HVD_OK) {
            EXPECT_EQ(status, HVD_NOT_INITIALIZED);
            return;
          }
          if (is_first) ++inside;
          float data = 1;
          hvd_op* op = nullptr;
          hvd_handle handle = 0;
          hvd_status status = hvd_prepare(mine, &description, &op);
          const hvd_start_arguments use = hvd_use_of(op, &data, &data);
          if (status == HVD_OK) status = hvd_start(mine, &use, 1, &handle);
          if (status == HVD_OK) status = hvd_wait(mine, handle, patience_ms);
          EXPECT_TRUE(status == HVD_OK || status == HVD_SHUT_DOWN) << hvd_last_error();
          hvd_release(mine, handle);
          hvd_op_release(mine, op);
          hvd_leave(mine);
        }
      });
    while (inside.load() < 4) std::this_thread::yield();
    hvd_shutdown(runtime);
  }
}

TEST(CurrentRuntime, waits_for_its_own_callers_when_the_next_one_is_there_already) {
  hvd_runtime *first = nullptr, *found = nullptr;
  std::uint64_t generation = 0, generation_of_next = 0;
  horovod::check(hvd_init(&first));
  horovod::check(hvd_enter(&found, &generation));
  std::jthread ends([&] { hvd_shutdown(first); });
  hvd_runtime* ending = nullptr;
  while (hvd_enter(&ending, nullptr) == HVD_OK) hvd_leave(ending);
  horovod::Runtime second;
  horovod::check(hvd_enter(&found, &generation_of_next));
  EXPECT_EQ(found, second.get());
  EXPECT_LT(generation, generation_of_next);
  hvd_leave(first);
  ends.join();
  hvd_leave(found);
}

TEST(CurrentRuntime, belongs_to_no_forked_child) {
  horovod::Runtime job;
  const pid_t child = ::fork();
  if (child == 0) {
    hvd_runtime* found = nullptr;
    const bool is_refused = hvd_enter(&found, nullptr) == HVD_INVALID_ARGUMENT && found == nullptr &&
                            std::string(hvd_last_error()).find("was forked from a rank") != std::string::npos;
    hvd_leave(found);
    ::_exit(is_refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
