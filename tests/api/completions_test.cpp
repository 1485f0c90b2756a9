// What a program learns at the end of its operations: callbacks with results, on both threads, and memory of its own
// for results whose size it could not know.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "api/patience.hpp"
#include "horovod.hpp"

namespace {

using hvd::testing::patience_ms;

hvd_op* prepare(hvd_runtime* runtime, const std::string& name, hvd_verb verb, hvd_dtype dtype = HVD_FLOAT32,
                hvd_reduce_op reduce_op = HVD_SUM) {
  const std::int64_t shape = 3;
  hvd_op_description description{};
  description.struct_size = sizeof description;
  description.name = name.c_str();
  description.verb = verb;
  description.dtype = dtype;
  description.reduce_op = reduce_op;
  description.dimensions = 1;
  description.shape = &shape;
  description.prescale = description.postscale = 1.0;
  hvd_op* op = nullptr;
  horovod::check(hvd_prepare(runtime, &description, &op));
  return op;
}

using OnEnd = std::function<void(const hvd_completion&)>;

// A start of an allgather of three rows whose end calls `on_end`.
hvd_start_arguments gather_of(hvd_op* op, const float (&rows)[3], OnEnd& on_end, hvd_callback_thread thread) {
  hvd_start_arguments use = hvd_use_of(op, rows, nullptr);
  use.first_dimension = 3;
  use.context = &on_end;
  use.callback_thread = thread;
  use.on_end = [](void* context, const hvd_completion* completion) { (*static_cast<OnEnd*>(context))(*completion); };
  return use;
}

class CompletionsOn : public ::testing::TestWithParam<hvd_callback_thread> {};
INSTANTIATE_TEST_SUITE_P(Both, CompletionsOn, ::testing::Values(HVD_ENGINE_THREAD, HVD_CALLBACK_THREAD),
                         [](const auto& thread) {
                           return thread.param == HVD_ENGINE_THREAD ? "the_engines_thread" : "a_thread_of_their_own";
                         });

TEST_P(CompletionsOn, give_the_handle_and_the_results_of_each_operation_of_a_start) {
  horovod::Runtime job;
  constexpr std::size_t members = 4;
  const float rows[3] = {1, 2, 3};
  std::vector<OnEnd> ends(members);
  std::vector<hvd_start_arguments> uses;
  std::atomic<int> told{0};
  hvd_handle handle = 0;
  for (std::size_t i = 0; i < members; ++i) {
    ends[i] = [&, i](const hvd_completion& it) {
      EXPECT_GE(it.struct_size, sizeof it);
      EXPECT_EQ(it.status, HVD_OK) << it.message;
      EXPECT_EQ(it.runtime, job.get());
      EXPECT_EQ(it.handle, handle);
      EXPECT_EQ(it.index, i);
      int dimensions = 0;
      std::int64_t shape[HVD_MAX_DIMENSIONS];
      float result[3] = {};
      EXPECT_EQ(hvd_result_shape(it.runtime, it.handle, it.index, &dimensions, shape), HVD_OK) << hvd_last_error();
      EXPECT_EQ(shape[0], 3);
      EXPECT_EQ(hvd_result_copy(it.runtime, it.handle, it.index, result, sizeof result), HVD_OK) << hvd_last_error();
      EXPECT_EQ(result[2], 3);
      EXPECT_NE(hvd_poll(it.runtime, it.handle), 1) << "the handle is not done before its callbacks";
      ++told;
    };
    uses.push_back(gather_of(prepare(job.get(), "gathered " + std::to_string(i), HVD_ALLGATHER), rows, ends[i],
                             i % 2 == 0 ? GetParam() : HVD_ENGINE_THREAD));
  }
  for (int step = 0; step < 50; ++step) {
    horovod::check(hvd_start(job.get(), uses.data(), uses.size(), &handle));
    EXPECT_EQ(hvd_wait(job.get(), handle, patience_ms), HVD_OK) << hvd_last_error();
    hvd_release(job.get(), handle);
  }
  EXPECT_EQ(told, 50 * static_cast<int>(members));
}

TEST_P(CompletionsOn, take_results_of_a_handle_that_was_released_at_once) {
  horovod::Runtime job;
  const float rows[3] = {1, 2, 3};
  hvd_op* op = prepare(job.get(), "gathered", HVD_ALLGATHER);
  for (int step = 0; step < 50; ++step) {
    std::promise<float> last;
    OnEnd on_end = [&](const hvd_completion& it) {
      void *data = nullptr, *owner = nullptr;
      void (*free_data)(void*) = nullptr;
      EXPECT_EQ(hvd_result_take(it.runtime, it.handle, it.index, &data, &owner, &free_data, nullptr), HVD_OK)
          << hvd_last_error();
      EXPECT_EQ(hvd_result_take(it.runtime, it.handle, it.index + 1, &data, &owner, &free_data, nullptr),
                HVD_INVALID_ARGUMENT)
          << "of another operation";
      const float third = static_cast<const float*>(data)[2];
      free_data(owner);
      last.set_value(third);
    };
    hvd_start_arguments use = gather_of(op, rows, on_end, GetParam());
    hvd_handle handle = 0;
    horovod::check(hvd_start(job.get(), &use, 1, &handle));
    hvd_release(job.get(), handle);
    EXPECT_EQ(last.get_future().get(), 3);
  }
}

TEST_P(CompletionsOn, take_the_results_of_all_operations_where_the_last_one_ends) {
  horovod::Runtime job;
  constexpr int members = 3;
  const float rows[3] = {1, 2, 3};
  int left = members;
  std::promise<float> sum;
  OnEnd on_end = [&](const hvd_completion& it) {
    if (--left > 0) return;
    float all = 0;
    for (std::size_t i = 0; i < members; ++i) {
      void *data = nullptr, *owner = nullptr;
      void (*free_data)(void*) = nullptr;
      const hvd_status taken = hvd_result_take(it.runtime, it.handle, i, &data, &owner, &free_data, nullptr);
      EXPECT_EQ(taken, HVD_OK) << hvd_last_error();
      if (taken != HVD_OK) continue;
      all += static_cast<const float*>(data)[2];
      free_data(owner);
    }
    hvd_release(it.runtime, it.handle);
    sum.set_value(all);
  };
  std::vector<hvd_start_arguments> uses;
  for (int i = 0; i < members; ++i)
    uses.push_back(
        gather_of(prepare(job.get(), "member " + std::to_string(i), HVD_ALLGATHER), rows, on_end, GetParam()));
  hvd_handle handle = 0;
  horovod::check(hvd_start(job.get(), uses.data(), uses.size(), &handle));
  EXPECT_EQ(sum.get_future().get(), 9);
}

TEST_P(CompletionsOn, start_the_next_use_of_the_same_name) {
  horovod::Runtime job;
  const float rows[3] = {1, 2, 3};
  hvd_op* op = prepare(job.get(), "again", HVD_ALLGATHER);
  int left = 100;
  std::promise<void> over;
  hvd_start_arguments use;
  OnEnd on_end = [&](const hvd_completion& it) {
    if (--left == 0) return over.set_value();
    hvd_handle next = 0;
    EXPECT_EQ(hvd_start(it.runtime, &use, 1, &next), HVD_OK) << hvd_last_error();
    hvd_release(it.runtime, next);
  };
  use = gather_of(op, rows, on_end, GetParam());
  hvd_handle handle = 0;
  horovod::check(hvd_start(job.get(), &use, 1, &handle));
  hvd_release(job.get(), handle);
  over.get_future().get();
}

TEST_P(CompletionsOn, have_all_been_told_when_the_job_has_ended) {
  hvd_runtime* runtime = nullptr;
  horovod::check(hvd_init(&runtime));
  constexpr int started = 300;
  const float rows[3] = {1, 2, 3};
  std::atomic<int> ended{0};
  OnEnd on_end = [&](const hvd_completion& it) {
    EXPECT_TRUE(it.status == HVD_OK || it.status == HVD_SHUT_DOWN) << it.message;
    ++ended;
  };
  for (int i = 0; i < started; ++i) {
    hvd_start_arguments use =
        gather_of(prepare(runtime, "gathered " + std::to_string(i), HVD_ALLGATHER), rows, on_end, GetParam());
    hvd_handle handle = 0;
    horovod::check(hvd_start(runtime, &use, 1, &handle));
    if (i % 2 == 0) hvd_release(runtime, handle);
  }
  hvd_stop(runtime);
  EXPECT_EQ(ended, started);
  hvd_shutdown(runtime);
}

TEST(Completions, on_their_own_thread_hold_up_no_operation) {
  horovod::Runtime job;
  const float rows[3] = {1, 2, 3};
  std::promise<void> others_are_done;
  OnEnd waits = [&](const hvd_completion&) { others_are_done.get_future().wait(); };
  hvd_start_arguments use =
      gather_of(prepare(job.get(), "slow callback", HVD_ALLGATHER), rows, waits, HVD_CALLBACK_THREAD);
  hvd_handle slow = 0;
  horovod::check(hvd_start(job.get(), &use, 1, &slow));
  for (int i = 0; i < 20; ++i) {
    float data[3] = {1, 2, 3};
    job.allreduce<float>("another", data, HVD_SUM);
  }
  EXPECT_EQ(hvd_poll(job.get(), slow), 0) << "its callback has not returned";
  others_are_done.set_value();
  EXPECT_EQ(hvd_wait(job.get(), slow, patience_ms), HVD_OK) << hvd_last_error();
  hvd_release(job.get(), slow);
}

TEST(Completions, are_refused_if_two_are_given_or_the_thread_is_unknown) {
  horovod::Runtime job;
  const float rows[3] = {1, 2, 3};
  OnEnd on_end = [](const hvd_completion&) { ADD_FAILURE() << "nothing was started"; };
  hvd_op* op = prepare(job.get(), "gathered", HVD_ALLGATHER);
  hvd_start_arguments use = gather_of(op, rows, on_end, HVD_ENGINE_THREAD);
  use.callback_thread = 7;
  hvd_handle handle = 0;
  EXPECT_EQ(hvd_start(job.get(), &use, 1, &handle), HVD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(hvd_last_error()).find("callback_thread is 7"), std::string::npos) << hvd_last_error();
  use.callback_thread = HVD_ENGINE_THREAD;
  use.on_done = [](void*, hvd_status, const char*) { ADD_FAILURE() << "nothing was started"; };
  EXPECT_EQ(hvd_start(job.get(), &use, 1, &handle), HVD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(hvd_last_error()).find("'gathered': on_done and on_end"), std::string::npos);
}

TEST(Completions, are_no_part_of_a_struct_of_an_older_header) {
  horovod::Runtime job;
  float data[3] = {1, 2, 3};
  hvd_start_arguments use = hvd_use_of(prepare(job.get(), "older", HVD_ALLREDUCE), data, data);
  use.struct_size = offsetof(hvd_start_arguments, on_end);
  use.on_end = [](void*, const hvd_completion*) { ADD_FAILURE() << "what is behind the struct was read"; };
  hvd_handle handle = 0;
  horovod::check(hvd_start(job.get(), &use, 1, &handle));
  EXPECT_EQ(hvd_wait(job.get(), handle, patience_ms), HVD_OK);
  hvd_release(job.get(), handle);
}

// ---- memory of the program for results ----

struct Shelf {
  float room[3] = {};
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
};

void* put_on_shelf(void* context, int dimensions, const std::int64_t* shape, std::size_t bytes) {
  auto* shelf = static_cast<Shelf*>(context);
  shelf->shape.assign(shape, shape + dimensions);
  shelf->bytes = bytes;
  return shelf->room;
}

TEST(ResultsInMemoryOfTheProgram, are_asked_for_with_their_shape_and_written_there) {
  horovod::Runtime job;
  const float rows[3] = {1, 2, 3};
  for (const hvd_verb verb : {HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
    Shelf shelf;
    hvd_start_arguments use = hvd_use_of(prepare(job.get(), "verb " + std::to_string(verb), verb), rows, nullptr);
    use.first_dimension = 3;
    use.context = &shelf;
    use.allocate = &put_on_shelf;
    hvd_handle handle = 0;
    horovod::check(hvd_start(job.get(), &use, 1, &handle));
    ASSERT_EQ(hvd_wait(job.get(), handle, patience_ms), HVD_OK) << hvd_last_error();
    EXPECT_EQ(shelf.shape, std::vector<std::int64_t>{3});
    EXPECT_EQ(shelf.bytes, sizeof rows);
    EXPECT_EQ(shelf.room[2], 3) << verb;
    int dimensions = 0;
    std::int64_t shape[HVD_MAX_DIMENSIONS];
    EXPECT_EQ(hvd_result_shape(job.get(), handle, 0, &dimensions, shape), HVD_OK) << hvd_last_error();
    void *data = nullptr, *owner = nullptr;
    void (*free_data)(void*) = nullptr;
    EXPECT_EQ(hvd_result_take(job.get(), handle, 0, &data, &owner, &free_data, nullptr), HVD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(hvd_last_error()).find("(allocate)"), std::string::npos) << hvd_last_error();
    hvd_release(job.get(), handle);
  }
}

TEST(ResultsInMemoryOfTheProgram, may_be_nowhere_if_they_have_no_bytes) {
  horovod::Runtime job;
  hvd_start_arguments use = hvd_use_of(prepare(job.get(), "nothing", HVD_ALLGATHER), nullptr, nullptr);
  use.allocate = [](void*, int, const std::int64_t*, std::size_t) -> void* { return nullptr; };
  hvd_handle handle = 0;
  horovod::check(hvd_start(job.get(), &use, 1, &handle));
  EXPECT_EQ(hvd_wait(job.get(), handle, patience_ms), HVD_OK) << hvd_last_error();
  hvd_release(job.get(), handle);
}

TEST(ResultsInMemoryOfTheProgram, that_has_none_end_the_work_of_the_rank_with_a_named_error) {
  horovod::Runtime job;
  const float rows[3] = {1, 2, 3};
  hvd_start_arguments use = hvd_use_of(prepare(job.get(), "too much", HVD_ALLGATHER), rows, nullptr);
  use.first_dimension = 3;
  use.allocate = [](void*, int, const std::int64_t*, std::size_t) -> void* { throw std::bad_alloc(); };
  hvd_handle handle = 0;
  horovod::check(hvd_start(job.get(), &use, 1, &handle));
  EXPECT_EQ(hvd_wait(job.get(), handle, patience_ms), HVD_OUT_OF_MEMORY);
  EXPECT_NE(std::string(hvd_last_error()).find("12 bytes of the result of allgather 'too much': allocate()"),
            std::string::npos)
      << hvd_last_error();
  hvd_release(job.get(), handle);
}

TEST(Results, that_were_taken_still_tell_their_shape_and_splits) {
  horovod::Runtime job;
  const float rows[3] = {1, 2, 3};
  hvd_start_arguments use = hvd_use_of(prepare(job.get(), "exchanged", HVD_ALLTOALL), rows, nullptr);
  use.first_dimension = 3;
  hvd_handle handle = 0;
  horovod::check(hvd_start(job.get(), &use, 1, &handle));
  horovod::check(hvd_wait(job.get(), handle, patience_ms));
  void *data = nullptr, *owner = nullptr;
  void (*free_data)(void*) = nullptr;
  horovod::check(hvd_result_take(job.get(), handle, 0, &data, &owner, &free_data, nullptr));
  int dimensions = 0, ordinal = -1;
  std::int64_t shape[HVD_MAX_DIMENSIONS] = {}, split = 0;
  hvd_device device = HVD_CUDA;
  EXPECT_EQ(hvd_result_splits(job.get(), handle, 0, &split, 1), HVD_OK) << hvd_last_error();
  EXPECT_EQ(hvd_result_shape(job.get(), handle, 0, &dimensions, shape), HVD_OK) << hvd_last_error();
  EXPECT_EQ(hvd_result_device(job.get(), handle, 0, &device, &ordinal), HVD_OK) << hvd_last_error();
  EXPECT_TRUE(split == 3 && dimensions == 1 && shape[0] == 3 && device == HVD_HOST);
  float copy[3] = {};
  void *again = nullptr, *owner_again = nullptr;
  EXPECT_EQ(hvd_result_copy(job.get(), handle, 0, copy, sizeof copy), HVD_INVALID_ARGUMENT);
  EXPECT_EQ(hvd_result_take(job.get(), handle, 0, &again, &owner_again, &free_data, nullptr), HVD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(hvd_last_error()).find("was taken before"), std::string::npos) << hvd_last_error();
  EXPECT_EQ(static_cast<const float*>(data)[2], 3);
  free_data(owner);
  hvd_release(job.get(), handle);
}

TEST(Results, begin_at_multiples_of_64_bytes) {
  horovod::Runtime job;
  hvd_op* op = prepare(job.get(), "aligned", HVD_ALLGATHER);
  for (std::int64_t count : {0, 1, 3, 16, 17, 100'003}) {
    const std::vector<float> rows(static_cast<std::size_t>(count) + 1);
    hvd_start_arguments use = hvd_use_of(op, rows.data(), nullptr);
    use.first_dimension = count;
    hvd_handle handle = 0;
    horovod::check(hvd_start(job.get(), &use, 1, &handle));
    horovod::check(hvd_wait(job.get(), handle, patience_ms));
    void *data = nullptr, *owner = nullptr;
    void (*free_data)(void*) = nullptr;
    horovod::check(hvd_result_take(job.get(), handle, 0, &data, &owner, &free_data, nullptr));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U) << count;
    free_data(owner);
    hvd_release(job.get(), handle);
  }
}

TEST(Results, of_wide_unsigned_integers_are_exact) {
  horovod::Runtime job;
  constexpr auto large = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t wide[3] = {large, large - 1, 7};
  std::uint32_t narrow[3] = {std::numeric_limits<std::uint32_t>::max(), 1, 0};
  job.allreduce<std::uint64_t>("wide", wide, HVD_MAX);
  job.allreduce<std::uint32_t>("narrow", narrow, HVD_SUM);
  EXPECT_EQ(wide[0], large);
  EXPECT_EQ(wide[1], large - 1);
  EXPECT_EQ(narrow[0], std::numeric_limits<std::uint32_t>::max());
}

}  // namespace
