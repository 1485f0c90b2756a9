// The C functions and the C++ classes over them, in a process that no launcher started: a job of one rank.
#include "horovod.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/data_type.hpp"
#include "base/tensor_view.hpp"
#include "base/verb.hpp"

namespace {

// Programs keep the numbers of the header with which they were built. A new value follows the last one that is here.
// (The enums of C are cast to ours, so both have these numbers.)
template <typename Enum>
consteval bool are_numbered(std::initializer_list<Enum> values) {
  int number = 0;
  for (Enum value : values)
    if (static_cast<int>(value) != number++) return false;
  return true;
}
static_assert(are_numbered({HVD_OK, HVD_INVALID_ARGUMENT, HVD_MISMATCH, HVD_NOT_INITIALIZED, HVD_SHUT_DOWN,
                            HVD_PEER_LOST, HVD_TIMEOUT, HVD_UNSUPPORTED, HVD_OUT_OF_MEMORY, HVD_SYSTEM_ERROR}));
static_assert(are_numbered({HVD_BOOL, HVD_UINT8, HVD_INT8, HVD_UINT16, HVD_INT16, HVD_INT32, HVD_INT64, HVD_FLOAT16,
                            HVD_BFLOAT16, HVD_FLOAT32, HVD_FLOAT64, HVD_UINT32, HVD_UINT64}));
static_assert(are_numbered({HVD_ALLREDUCE, HVD_ALLGATHER, HVD_BROADCAST, HVD_BARRIER, HVD_REDUCESCATTER, HVD_ALLTOALL,
                            HVD_JOIN}));
static_assert(are_numbered({HVD_AVERAGE, HVD_SUM, HVD_ADASUM, HVD_MIN, HVD_MAX, HVD_PRODUCT}));
static_assert(are_numbered({HVD_HOST, HVD_CUDA, HVD_ROCM}));
static_assert(are_numbered({HVD_ELASTIC_FIRST, HVD_ELASTIC_FAILED, HVD_ELASTIC_HOSTS_UPDATED}));
static_assert(are_numbered({HVD_ENGINE_THREAD, HVD_CALLBACK_THREAD}));
static_assert(are_numbered({HVD_STOP_PROGRAM, HVD_STOP_WARNED, HVD_STOP_TERMINATED, HVD_STOP_TIME}));
static_assert(are_numbered({HVD_ENTRY_GROUP, HVD_ENTRY_NONE, HVD_ENTRY_BOOL, HVD_ENTRY_INTEGER, HVD_ENTRY_NUMBER,
                            HVD_ENTRY_TEXT, HVD_ENTRY_TENSOR}));
using hvd::DataType, hvd::DeviceKind, hvd::Verb;
static_assert(are_numbered({DataType::boolean, DataType::u8, DataType::i8, DataType::u16, DataType::i16, DataType::i32,
                            DataType::i64, DataType::f16, DataType::bf16, DataType::f32, DataType::f64, DataType::u32,
                            DataType::u64}));
static_assert(are_numbered({Verb::allreduce, Verb::allgather, Verb::broadcast, Verb::barrier, Verb::reduce_scatter,
                            Verb::alltoall, Verb::join}));
static_assert(are_numbered({DeviceKind::host, DeviceKind::cuda, DeviceKind::rocm}));

hvd_op_description floats(const char* name, hvd_verb verb, const std::int64_t* shape, int dimensions) {
  hvd_op_description description{};
  description.struct_size = sizeof description;
  description.name = name;
  description.verb = verb;
  description.dtype = HVD_FLOAT32;
  description.reduce_op = HVD_SUM;
  description.dimensions = dimensions;
  description.shape = shape;
  description.prescale = description.postscale = 1.0;
  return description;
}

hvd_status start(hvd_runtime* runtime, hvd_verb verb, std::int64_t count, const void* input, void* output) {
  hvd_op_description description = floats("tensor", verb, &count, 1);
  hvd_op* op = nullptr;
  horovod::check(hvd_prepare(runtime, &description, &op));
  hvd_start_arguments arguments = hvd_use_of(op, input, output);
  arguments.first_dimension = count;
  hvd_handle handle = 0;
  hvd_status status = hvd_start(runtime, &arguments, 1, &handle);
  if (status == HVD_OK) status = hvd_wait(runtime, handle, -1);
  hvd_release(runtime, handle);
  hvd_op_release(runtime, op);
  return status;
}

TEST(Api, refuses_what_has_elements_and_no_memory_whatever_the_verb) {
  horovod::Runtime job;
  float data[2] = {1, 2};
  EXPECT_EQ(start(job.get(), HVD_ALLGATHER, 2, nullptr, nullptr), HVD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(hvd_last_error()).find("no memory of its own"), std::string::npos) << hvd_last_error();
  for (hvd_verb verb : {HVD_ALLREDUCE, HVD_BROADCAST}) {
    EXPECT_EQ(start(job.get(), verb, 2, nullptr, data), HVD_INVALID_ARGUMENT);
    EXPECT_EQ(start(job.get(), verb, 2, data, nullptr), HVD_INVALID_ARGUMENT);
  }
  for (hvd_verb verb : {HVD_ALLREDUCE, HVD_BROADCAST, HVD_ALLGATHER}) {
    EXPECT_EQ(start(job.get(), verb, 0, nullptr, nullptr), HVD_OK) << "nothing needs no memory";
    EXPECT_EQ(start(job.get(), verb, 2, data, data), HVD_OK);
  }
}

TEST(Api, refuses_an_output_that_overlaps_its_input_and_takes_one_beside_it) {
  horovod::Runtime job;
  float data[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (hvd_verb verb : {HVD_ALLREDUCE, HVD_BROADCAST, HVD_REDUCESCATTER})
    for (int begin : {1, 2, 3, 5, 6, 7}) {  // the input has elements 4 and 5
      const bool overlaps = begin == 3 || begin == 5;
      EXPECT_EQ(start(job.get(), verb, 2, data + 4, data + begin), overlaps ? HVD_INVALID_ARGUMENT : HVD_OK) << begin;
      if (!overlaps) continue;
      EXPECT_NE(std::string(hvd_last_error()).find("'tensor': input and output overlap"), std::string::npos);
    }
  for (hvd_verb verb : {HVD_ALLREDUCE, HVD_BROADCAST, HVD_REDUCESCATTER})
    EXPECT_EQ(start(job.get(), verb, 0, data + 4, data + 3), HVD_OK) << "nothing overlaps nothing";
}

TEST(Api, forgets_operations_that_were_released) {
  horovod::Runtime job;
  const std::int64_t before = hvd_counter(job.get(), "operations");
  std::vector<float> data(3000);
  for (std::size_t i = 1; i < data.size(); ++i) job.allreduce("of changing sizes", std::span(data).first(i), HVD_SUM);
  EXPECT_LE(hvd_counter(job.get(), "operations"), before + 1) << "the last one's slot";
}

TEST(Cpp, threads_prepare_operations_of_different_sizes_at_once) {
  horovod::Runtime job;
  auto use = [&job](const std::string& name, std::size_t count) {
    std::vector<float> mine(count, 1);
    for (int i = 0; i < 3000; ++i) {
      job.allreduce_op<float>(name, count, HVD_SUM);
      EXPECT_EQ(job.allgather<float>(name + " gathered", mine).size(), count);
    }
  };
  { std::jthread one(use, "one", 1), other(use, "other", 70); }
  // Two kept operations, and two that still hold a slot. No operation was prepared with the size of the other name.
  EXPECT_LE(hvd_counter(job.get(), "operations"), 4);
}

TEST(Api, ends_what_threads_wait_for_when_it_stops) {
  hvd_runtime* runtime = nullptr;
  horovod::check(hvd_init(&runtime));
  hvd_stop(runtime);
  float data = 1;
  EXPECT_EQ(start(runtime, HVD_ALLREDUCE, 1, &data, &data), HVD_SHUT_DOWN);
  EXPECT_FALSE(hvd_is_running(runtime));
  hvd_stop(runtime);
  hvd_shutdown(runtime);
}

TEST(Api, starts_a_transient_operation_once) {
  horovod::Runtime job;
  float data = 1;
  for (int i = 0; i < 3; ++i) {
    const std::string name = "once " + std::to_string(i);
    hvd_op_description description = floats(name.c_str(), HVD_ALLREDUCE, nullptr, 0);
    description.transient = 1;
    hvd_op* op = nullptr;
    horovod::check(hvd_prepare(job.get(), &description, &op));
    hvd_start_arguments arguments = hvd_use_of(op, &data, &data);
    hvd_handle handle = 0, second = 0;
    horovod::check(hvd_start(job.get(), &arguments, 1, &handle));
    horovod::check(hvd_wait(job.get(), handle, -1));
    EXPECT_EQ(hvd_start(job.get(), &arguments, 1, &second), HVD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(hvd_last_error()).find("has been started before"), std::string::npos) << hvd_last_error();
    hvd_release(job.get(), handle);
  }
  EXPECT_LE(hvd_counter(job.get(), "operations"), 1);
}

TEST(Api, handles_of_one_runtime_mean_nothing_to_the_next) {
  float data = 1;
  hvd_handle handles[2] = {};
  std::unique_ptr<horovod::Runtime> jobs[2];
  for (int i = 0; i < 2; ++i) {
    jobs[i] = std::make_unique<horovod::Runtime>();
    const hvd_op_description description = floats("tensor", HVD_ALLREDUCE, nullptr, 0);
    hvd_op* op = nullptr;
    horovod::check(hvd_prepare(jobs[i]->get(), &description, &op));
    hvd_start_arguments arguments = hvd_use_of(op, &data, &data);
    horovod::check(hvd_start(jobs[i]->get(), &arguments, 1, &handles[i]));
    horovod::check(hvd_wait(jobs[i]->get(), handles[i], -1));
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(hvd_poll(jobs[i]->get(), handles[i]), 1);
    EXPECT_EQ(hvd_poll(jobs[i]->get(), handles[1 - i]), -1);
    EXPECT_EQ(hvd_wait(jobs[i]->get(), handles[1 - i], -1), HVD_INVALID_ARGUMENT);
    hvd_release(jobs[i]->get(), handles[1 - i]);
    EXPECT_EQ(hvd_poll(jobs[i]->get(), handles[i]), 1) << "a stranger's release";
  }
}

TEST(Api, names_the_reduce_operations_if_it_is_given_an_unknown_one) {
  horovod::Runtime job;
  hvd_op_description description = floats("tensor", HVD_ALLREDUCE, nullptr, 0);
  description.reduce_op = static_cast<hvd_reduce_op>(HVD_PRODUCT + 1);
  hvd_op* op = nullptr;
  EXPECT_EQ(hvd_prepare(job.get(), &description, &op), HVD_INVALID_ARGUMENT);
  EXPECT_STREQ(
      hvd_last_error(),
      "reduce operation 6 is not known; expected average (0), sum (1), Adasum (2), min (3), max (4) or product (5)");
}

TEST(Api, keeps_shared_memory_that_is_held_beyond_the_runtime) {
  hvd_runtime* runtime = nullptr;
  horovod::check(hvd_init(&runtime));
  void* memory = nullptr;
  horovod::check(hvd_shared_allocate(runtime, 100 * sizeof(float), &memory));
  EXPECT_EQ(hvd_shared_hold(runtime, &runtime), nullptr);
  hvd_shared_hold_t* hold = hvd_shared_hold(runtime, memory);
  ASSERT_NE(hold, nullptr);
  auto* data = static_cast<float*>(memory);
  data[99] = 7;
  hvd_shutdown(runtime);
  EXPECT_EQ(data[99], 7);
  data[0] = 8;
  hvd_shared_drop(hold);
}

// A struct of a newer header: it has more fields than our struct.
template <typename Struct>
struct Newer {
  Struct known;
  std::uint64_t unknown = 0;
};

TEST(Api, takes_a_struct_from_the_future_if_what_is_unknown_in_it_is_zero) {
  horovod::Runtime job;
  const std::int64_t shape = 2;
  float data[2] = {1, 2};
  Newer<hvd_op_description> description{floats("future", HVD_ALLREDUCE, &shape, 1)};
  description.known.struct_size = sizeof description;
  hvd_op* op = nullptr;
  ASSERT_EQ(hvd_prepare(job.get(), &description.known, &op), HVD_OK) << hvd_last_error();
  Newer<hvd_start_arguments> uses[2];
  for (auto& use : uses) {
    use.known = hvd_use_of(op, data, data);
    use.known.struct_size = sizeof use;
  }
  hvd_handle handle = 0;
  EXPECT_EQ(hvd_start(job.get(), &uses[0].known, 1, &handle), HVD_OK) << hvd_last_error();
  EXPECT_EQ(hvd_wait(job.get(), handle, -1), HVD_OK);
  hvd_release(job.get(), handle);
  uses[0].unknown = description.unknown = 1;
  EXPECT_EQ(hvd_start(job.get(), &uses[0].known, 1, &handle), HVD_UNSUPPORTED);
  EXPECT_EQ(hvd_prepare(job.get(), &description.known, &op), HVD_UNSUPPORTED);
  EXPECT_NE(std::string(hvd_last_error()).find("a field behind them is set"), std::string::npos) << hvd_last_error();
}

TEST(Api, names_the_struct_whose_size_was_forgotten) {
  horovod::Runtime job;
  const std::int64_t shape = 2;
  hvd_op_description description = floats("no size", HVD_ALLREDUCE, &shape, 1);
  description.struct_size = 0;
  hvd_op* op = nullptr;
  EXPECT_EQ(hvd_prepare(job.get(), &description, &op), HVD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(hvd_last_error()).find("hvd_op_description.struct_size is 0"), std::string::npos);
  EXPECT_EQ(hvd_get_world(job.get(), nullptr), HVD_INVALID_ARGUMENT);
  EXPECT_STREQ(hvd_last_error(), "expected a hvd_world; got null");
}

TEST(Api, tells_bindings_what_they_need_to_know_of_a_kind_of_device) {
  hvd_device_facts facts{};
  facts.struct_size = sizeof facts;
  ASSERT_EQ(hvd_get_device_facts(HVD_HOST, &facts), HVD_OK);
  EXPECT_STREQ(facts.name, "host");
  EXPECT_EQ(facts.dlpack_type, 1);
  EXPECT_EQ(facts.default_stream, nullptr);
  ASSERT_EQ(hvd_get_device_facts(HVD_CUDA, &facts), HVD_OK);
  EXPECT_STREQ(facts.name, "cuda");
  EXPECT_EQ(facts.dlpack_type, 2);
  EXPECT_EQ(facts.default_stream, reinterpret_cast<void*>(1));
  ASSERT_EQ(hvd_get_device_facts(HVD_ROCM, &facts), HVD_OK);
  EXPECT_STREQ(facts.name, "rocm");
  EXPECT_EQ(facts.dlpack_type, 10);

  for (int number : {-1, HVD_ROCM + 1, HVD_CUDA + 256})
    EXPECT_EQ(hvd_get_device_facts(static_cast<hvd_device>(number), &facts), HVD_INVALID_ARGUMENT) << number;
  facts.struct_size = 0;
  EXPECT_EQ(hvd_get_device_facts(HVD_CUDA, &facts), HVD_INVALID_ARGUMENT);
  EXPECT_EQ(hvd_get_device_facts(HVD_CUDA, nullptr), HVD_INVALID_ARGUMENT);
}

struct Heard {
  hvd_runtime* runtime = nullptr;
  int calls = 0;
  hvd_status status = HVD_TIMEOUT, wait = HVD_OK;
};

TEST(Api, calls_back_when_an_operation_is_over_where_nobody_may_wait) {
  horovod::Runtime job;
  const std::int64_t shape = 2;
  float data[2] = {1, 2};
  hvd_op_description description = floats("with callback", HVD_ALLREDUCE, &shape, 1);
  hvd_op* op = nullptr;
  horovod::check(hvd_prepare(job.get(), &description, &op));
  Heard heard{job.get()};
  hvd_start_arguments use = hvd_use_of(op, data, data);
  use.context = &heard;
  use.on_done = [](void* context, hvd_status status, const char*) {
    auto& it = *static_cast<Heard*>(context);
    ++it.calls;
    it.status = status;
    hvd_stop(it.runtime);  // this call is refused: hvd_stop would have to end the very thread that calls it
    int id = 0, rank = 0;
    it.wait = hvd_add_process_set(it.runtime, &rank, 1, &id);
  };
  hvd_handle handle = 0;
  horovod::check(hvd_start(job.get(), &use, 1, &handle));
  EXPECT_EQ(hvd_wait(job.get(), handle, -1), HVD_OK);
  hvd_release(job.get(), handle);
  EXPECT_EQ(heard.calls, 1);
  EXPECT_EQ(heard.status, HVD_OK);
  EXPECT_EQ(heard.wait, HVD_INVALID_ARGUMENT);
  EXPECT_EQ(hvd_is_running(job.get()), 1);
}

TEST(Api, survives_a_callback_that_throws) {
  horovod::Runtime job;
  const std::int64_t shape = 1;
  float data = 1;
  hvd_op_description description = floats("throws", HVD_ALLREDUCE, &shape, 1);
  hvd_op* op = nullptr;
  horovod::check(hvd_prepare(job.get(), &description, &op));
  for (int i = 0; i < 2; ++i) {
    hvd_start_arguments use = hvd_use_of(op, &data, &data);
    use.on_done = [](void*, hvd_status, const char*) { throw std::runtime_error("by a program"); };
    hvd_handle handle = 0;
    horovod::check(hvd_start(job.get(), &use, 1, &handle));
    EXPECT_EQ(hvd_wait(job.get(), handle, -1), HVD_OK);
    hvd_release(job.get(), handle);
  }
}

TEST(Api, hands_a_result_over_once_and_it_outlives_the_job) {
  float* taken = nullptr;
  void* owner = nullptr;
  void (*free_data)(void*) = nullptr;
  float rows[2] = {3, 4};
  {
    horovod::Runtime job;
    const std::int64_t shape = 2;
    hvd_op_description description = floats("taken", HVD_ALLGATHER, &shape, 1);
    hvd_op* op = nullptr;
    horovod::check(hvd_prepare(job.get(), &description, &op));
    hvd_start_arguments use = hvd_use_of(op, rows, nullptr);
    use.first_dimension = 2;
    hvd_handle handle = 0;
    horovod::check(hvd_start(job.get(), &use, 1, &handle));
    horovod::check(hvd_wait(job.get(), handle, -1));
    void* data = nullptr;
    ASSERT_EQ(hvd_result_take(job.get(), handle, 0, &data, &owner, &free_data, nullptr), HVD_OK);
    taken = static_cast<float*>(data);
    EXPECT_EQ(hvd_result_take(job.get(), handle, 0, &data, &owner, &free_data, nullptr), HVD_INVALID_ARGUMENT);
    hvd_release(job.get(), handle);
  }
  EXPECT_EQ(taken[1], 4);
  free_data(owner);
}

TEST(Api, checks_the_splits_of_an_alltoall) {
  horovod::Runtime job;
  const std::int64_t shape = 2;
  float rows[2] = {3, 4};
  hvd_op_description description = floats("splits", HVD_ALLTOALL, &shape, 1);
  hvd_op* op = nullptr;
  horovod::check(hvd_prepare(job.get(), &description, &op));
  auto outcome = [&](std::vector<std::int64_t> splits) {
    hvd_start_arguments use = hvd_use_of(op, rows, nullptr);
    use.first_dimension = 2;
    use.splits = splits.data();
    use.split_count = splits.size();
    hvd_handle handle = 0;
    hvd_status status = hvd_start(job.get(), &use, 1, &handle);
    if (status != HVD_OK) return status;
    status = hvd_wait(job.get(), handle, -1);
    std::int64_t received = 0;
    EXPECT_EQ(hvd_result_splits(job.get(), handle, 0, &received, 1), HVD_OK);
    EXPECT_EQ(received, splits[0]);
    hvd_release(job.get(), handle);
    return status;
  };
  EXPECT_EQ(outcome({2}), HVD_OK) << hvd_last_error();
  EXPECT_EQ(outcome({1}), HVD_OK) << "the rows behind it are left out";
  EXPECT_EQ(outcome({3}), HVD_INVALID_ARGUMENT);
  EXPECT_EQ(outcome({-1}), HVD_INVALID_ARGUMENT);
  EXPECT_EQ(outcome({1, 1}), HVD_INVALID_ARGUMENT);
}

TEST(Api, deals_rows_out_as_evenly_as_it_can) {
  EXPECT_EQ(hvd_rows_of(5, 0, 3), 2);
  EXPECT_EQ(hvd_rows_of(5, 2, 3), 1);
  EXPECT_EQ(hvd_rows_of(0, 1, 3), 0);
  EXPECT_EQ(hvd_rows_of(5, 3, 3), -1);
}

}  // namespace
