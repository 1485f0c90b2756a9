// The C functions and the C++ classes over them, in a process that nobody launched: a job of one rank.
#include "horovod.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

namespace {

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
  // Two kept ones, and the slots of two more: none was prepared with the other's size.
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

}  // namespace
