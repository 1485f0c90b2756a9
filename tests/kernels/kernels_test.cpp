// The kit for kernels, used by a framework of the tests. As a rank of a job (horovodrun -np 2 test_kernels) all ranks
// run the same tests in the same order.
#include <algorithm>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernels/fake_framework.hpp"
#include "multiprocess/libpmix_leaks.hpp"

namespace hvd::testing {
namespace {

constexpr int threads = 4;

void on_threads(const std::function<void(int)>& body) {
  std::vector<std::jthread> all;
  for (int number = 0; number < threads; ++number) all.emplace_back([&body, number] { body(number); });
}

TEST(Kernels, that_begin_before_the_job_does_end_at_once_with_a_named_error) {
  const Computed found = begin(reduction("too early", {1})).get();
  EXPECT_EQ(found.status, HVD_NOT_INITIALIZED);
  EXPECT_NE(found.message.find("has not been initialized"), std::string::npos) << found.message;
}

TEST(Kernels, of_four_threads_get_results_whose_size_no_rank_knew) {
  const horovod::Runtime job;
  on_threads([&](int number) {
    for (int step = 0; step < 20; ++step) {
      const auto rows = static_cast<std::size_t>((job.rank() + step) % 3);
      auto kernel = std::make_unique<Kernel>(job.size());
      kernel->gather("gathered by " + std::to_string(number), Values(rows, static_cast<float>(job.rank())));
      const Computed found = begin(std::move(kernel)).get();
      ASSERT_EQ(found.status, HVD_OK) << found.message;
      Values expected;
      for (int rank = 0; rank < job.size(); ++rank) {
        EXPECT_EQ(found.rows[0][static_cast<std::size_t>(rank)], (rank + step) % 3);
        expected.insert(expected.end(), static_cast<std::size_t>((rank + step) % 3), static_cast<float>(rank));
      }
      EXPECT_EQ(found.values[0], expected);
    }
  });
  EXPECT_EQ(hvd_counter(job.get(), "operations"), threads);  // not one for each number of rows
}

TEST(Kernels, of_a_loop_with_iterations_in_flight_wait_for_the_name_in_their_order) {
  const horovod::Runtime job;
  on_threads([&](int number) {
    constexpr int iterations = 50;
    const std::string name = "loop " + std::to_string(number);
    std::vector<std::future<Computed>> later;
    for (int i = 0; i < iterations; ++i)  // the shape changes, as with a last small batch
      later.push_back(begin(reduction(name, Values(i % 10 == 9 ? 1 : 4, static_cast<float>(i)))));
    for (int i = 0; i < iterations; ++i) {
      const Computed found = later[static_cast<std::size_t>(i)].get();
      ASSERT_EQ(found.status, HVD_OK) << found.message;
      EXPECT_EQ(found.values[0], Values(i % 10 == 9 ? 1 : 4, static_cast<float>(i * job.size()))) << i;
    }
  });
}

TEST(Kernels, of_groups_and_single_tensors_that_share_names_take_turns) {
  const horovod::Runtime job;
  std::vector<std::future<Computed>> later;
  const std::vector<std::vector<std::string>> uses = {{"a", "b"}, {"b", "c"}, {"a"}, {"c", "a"}, {"b"}, {"c"}};
  for (int round = 0; round < 30; ++round)
    for (const auto& names : uses) {
      auto kernel = std::make_unique<Kernel>();
      for (const std::string& name : names) kernel->reduce(name, {static_cast<float>(later.size())});
      later.push_back(begin(std::move(kernel)));
    }
  for (std::size_t i = 0; i < later.size(); ++i) {
    const Computed found = later[i].get();
    ASSERT_EQ(found.status, HVD_OK) << found.message;
    for (const Values& values : found.values)
      EXPECT_EQ(values, Values{static_cast<float>(i) * static_cast<float>(job.size())});
  }
}

TEST(Kernels, may_begin_the_next_ones_where_they_end) {
  const horovod::Runtime job;
  std::promise<void> over;
  int left = 100;
  std::function<void(const Computed&)> next = [&](const Computed& found) {
    EXPECT_EQ(found.status, HVD_OK) << found.message;
    if (--left == 0) return over.set_value();
    auto kernel = reduction("chain", {1});
    kernel->then(next);
    kernels::submit(std::move(kernel));
  };
  auto first = reduction("chain", {1});
  first->then(next);
  kernels::submit(std::move(first));
  over.get_future().get();
}

TEST(Kernels, that_wait_where_they_end_get_a_named_error) {
  horovod::Runtime job;
  auto kernel = reduction("waits", {1});
  std::promise<std::string> refusal;
  kernel->then([&](const Computed&) {
    int id = 0;
    EXPECT_EQ(hvd_add_process_set(job.get(), nullptr, 0, &id), HVD_INVALID_ARGUMENT);
    refusal.set_value(hvd_last_error());
  });
  kernels::submit(std::move(kernel));
  EXPECT_NE(refusal.get_future().get().find("was called in a callback"), std::string::npos);
}

TEST(Kernels, that_fail_leave_the_way_free_for_those_that_wait_behind_them) {
  const horovod::Runtime job;
  std::vector<std::future<Computed>> later;
  for (int i = 0; i < 30; ++i) {
    auto kernel = reduction("fails", {1});
    if (i % 3 == 0) kernel->last().what.dtype = static_cast<hvd_dtype>(15);          // refused here
    if (i % 3 == 1 && job.rank() == 0) kernel->last().what.reduce_op = HVD_PRODUCT;  // the ranks disagree
    later.push_back(begin(std::move(kernel)));
  }
  for (std::size_t i = 0; i < later.size(); ++i) {
    const Computed found = later[i].get();
    const hvd_status disagreement = job.size() > 1 ? HVD_MISMATCH : HVD_OK;
    EXPECT_EQ(found.status, i % 3 == 0 ? HVD_INVALID_ARGUMENT : i % 3 == 1 ? disagreement : HVD_OK) << found.message;
  }
}

TEST(Kernels, end_once_each_when_the_job_ends_wherever_they_are) {
  for (int round = 0; round < 10; ++round) {
    begun = ended = 0;
    hvd_runtime* runtime = nullptr;
    horovod::check(hvd_init(&runtime));
    std::atomic<bool> is_over{false};
    std::atomic<int> running{0};
    std::vector<std::jthread> all;
    for (int number = 0; number < threads; ++number)
      all.emplace_back([&, number] {
        for (bool is_first = true; !is_over.load(); is_first = false) {
          std::vector<std::future<Computed>> later;
          for (int i = 0; i < 5; ++i) {
            auto kernel = std::make_unique<Kernel>();
            kernel->reduce("shared by iterations " + std::to_string(number), {1});
            kernel->reduce("and by members " + std::to_string(number), {2});
            later.push_back(begin(std::move(kernel)));
          }
          if (is_first) ++running;
          for (auto& it : later) {
            const Computed found = it.get();
            EXPECT_TRUE(found.status == HVD_OK || found.status == HVD_SHUT_DOWN || found.status == HVD_NOT_INITIALIZED)
                << found.message;
          }
        }
      });
    while (running.load() < threads) std::this_thread::yield();
    hvd_shutdown(runtime);
    is_over = true;
    all.clear();
    EXPECT_EQ(begun, ended);
  }
}

TEST(Kernels, with_ever_new_names_keep_few_operations) {
  const horovod::Runtime job;
  for (int i = 0; i < 100; ++i) {
    auto kernel = std::make_unique<Kernel>();
    for (int j = 0; j < 100; ++j) kernel->reduce("name " + std::to_string(100 * i + j), {1});
    EXPECT_EQ(begin(std::move(kernel)).get().status, HVD_OK);
  }
  EXPECT_LE(kernels::known_names(), 8192U);
  EXPECT_LE(hvd_counter(job.get(), "operations"), 2 * 8192);
}

}  // namespace
}  // namespace hvd::testing
