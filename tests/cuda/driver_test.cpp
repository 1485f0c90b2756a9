// The table of the driver's entry points, the contexts and the errors, on the double of the driver.
#include "native/cuda/driver.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "doubles/cuda/control.h"
#include "native/cuda/owners.hpp"

namespace hvd::cuda {
namespace {

constexpr const char* path = HVD_CUDA_DOUBLE;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class OnDouble : public ::testing::Test {
 protected:
  OnDouble() : driver(load_driver(path)) { EXPECT_TRUE(driver) << driver.error().message; }
  std::shared_ptr<const Context> open(int ordinal = 0) {
    auto context = Context::open(*driver, ordinal);
    EXPECT_TRUE(context) << context.error().message;
    return *context;
  }
  std::string why_not(int ordinal = 0) {
    auto context = Context::open(*driver, ordinal);
    return context ? "" : context.error().message;
  }
  Result<Driver> driver;
};

TEST(Driver, that_is_not_there_is_an_error_with_the_loaders_text) {
  auto driver = load_driver("/nowhere/libcuda.so.1");
  ASSERT_FALSE(driver);
  EXPECT_EQ(driver.error().code, ErrorCode::unsupported);
  EXPECT_TRUE(has(driver.error().message, "NVIDIA's driver was not found: /nowhere/libcuda.so.1: cannot open"))
      << driver.error().message;
  EXPECT_TRUE(has(driver.error().message, "HOROVOD_CUDA_DRIVER")) << driver.error().message;
}

TEST(Driver, that_is_too_old_is_an_error_with_both_versions) {
  hvd_double_set_version(11040);
  auto driver = load_driver(path);
  ASSERT_FALSE(driver);
  EXPECT_TRUE(has(driver.error().message, "is a driver for CUDA 11.4, needed is CUDA 11.8 or later"))
      << driver.error().message;
}

TEST(Driver, that_is_another_library_is_an_error_with_what_it_lacks) {
  auto driver = load_driver("libm.so.6");
  ASSERT_FALSE(driver);
  EXPECT_TRUE(has(driver.error().message, "is no complete driver of CUDA, it lacks cuInit, cuDriverGetVersion"))
      << driver.error().message;
}

TEST(Driver, that_does_not_start_is_an_error_with_its_reason_and_what_to_do) {
  hvd_double_refuse("cuInit", static_cast<int>(Code::system_driver_mismatch), 0, 0);
  auto driver = load_driver(path);
  ASSERT_FALSE(driver);
  EXPECT_TRUE(has(driver.error().message, "(CUDA 12.8) does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803"))
      << driver.error().message;
  EXPECT_TRUE(has(driver.error().message, "give the container the host's library")) << driver.error().message;
}

TEST_F(OnDouble, a_context_knows_its_gpu) {
  const auto context = open(1);
  EXPECT_EQ(context->facts().name, "Double of a GPU");
  EXPECT_EQ(context->facts().bus_id, "0000:a1:00.0");
  EXPECT_EQ(context->facts().uuid, "GPU-d0d0d0d0-d0d0-d0d0-d0d0-d0d0d0d0d001");
  EXPECT_EQ(context->facts().capability, 90);
}

TEST_F(OnDouble, a_context_on_a_part_of_a_gpu_has_the_name_of_the_part) {
  hvd_double_make_part(1, "MIG-01234567-89ab-cdef-0123-456789abcdef");
  const auto context = open(1);
  EXPECT_EQ(context->facts().bus_id, "0000:a0:00.0");
  EXPECT_EQ(context->facts().uuid, "MIG-01234567-89ab-cdef-0123-456789abcdef");
}

TEST_F(OnDouble, a_gpu_that_is_not_there_or_taken_is_an_error_that_tells_why) {
  EXPECT_TRUE(has(why_not(7), "this process sees 2 GPUs, and a tensor is on cuda device 7")) << why_not(7);
  hvd_double_set_mode(0, static_cast<int>(ComputeMode::exclusive_process), 1);
  const std::string taken = why_not();
  EXPECT_TRUE(has(taken, "(the GPU is in exclusive mode) on cuda device 0: CUDA_ERROR_DEVICE_UNAVAILABLE (46"))
      << taken;
  EXPECT_TRUE(has(taken, "another process has the GPU")) << taken;
  hvd_double_set_mode(0, static_cast<int>(ComputeMode::prohibited), 0);
  EXPECT_TRUE(has(why_not(), "prohibited mode")) << why_not();
  hvd_double_set_mode(0, static_cast<int>(ComputeMode::exclusive_process), 0);
  EXPECT_EQ(why_not(), "");
  for (const Code code :
       {Code::mps_connection_failed, Code::mps_rpc_failure, Code::mps_server_not_ready, Code::mps_client_terminated}) {
    hvd_double_refuse("cuDevicePrimaryCtxRetain", static_cast<int>(code), 0, 0);
    EXPECT_TRUE(has(why_not(), "CUDA_MPS_LOG_DIRECTORY")) << static_cast<int>(code);
  }
  for (const Code code : {Code::mps_max_clients_reached, Code::mps_max_connections_reached}) {
    hvd_double_refuse("cuDevicePrimaryCtxRetain", static_cast<int>(code), 0, 0);
    EXPECT_TRUE(has(why_not(), "let fewer processes share the GPU")) << static_cast<int>(code);
  }
  hvd_double_refuse("cuDevicePrimaryCtxRetain", static_cast<int>(Code::ecc_uncorrectable), 0, 0);
  EXPECT_TRUE(has(why_not(), "leave this node out"));
}

TEST_F(OnDouble, a_use_of_a_context_leaves_the_threads_own_context_current) {
  const auto first = open(0), second = open(1);
  ContextHandle before = nullptr, within = nullptr, after = nullptr;
  const Context::Use outer(*first);
  EXPECT_EQ(driver->context_current(&before), Code::success);
  {
    const Context::Use inner(*second);
    EXPECT_EQ(driver->context_current(&within), Code::success);
  }
  EXPECT_EQ(driver->context_current(&after), Code::success);
  EXPECT_NE(within, before);
  EXPECT_EQ(after, before);
}

TEST_F(OnDouble, owners_give_back_on_any_thread_and_after_the_drivers_end) {
  const auto context = open();
  auto stream = make_stream(context, 0);
  auto event = make_event(context);
  auto memory = make_device_memory(context, 100);
  auto pages = make_page_locked(context, 100);
  ASSERT_TRUE(stream && event && memory && pages);
  std::thread([&] {
    *memory = {};
    *pages = {};
  }).join();
  EXPECT_EQ(hvd_double_allocations(), 0u);
  hvd_double_end();
}

TEST_F(OnDouble, a_lack_of_memory_is_an_error_that_tells_how_much_there_was) {
  const auto context = open();
  hvd_double_set_memory(1000);
  auto first = make_device_memory(context, 600);
  ASSERT_TRUE(first);
  auto second = make_device_memory(context, 500);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::out_of_memory);
  EXPECT_TRUE(has(second.error().message,
                  "no memory for 500 bytes (400 of 1000 bytes are free) on cuda device 0: "
                  "CUDA_ERROR_OUT_OF_MEMORY (2, out of memory)"))
      << second.error().message;
  *first = {};
}

// The double ends a child that calls it.
TEST_F(OnDouble, a_forked_child_does_not_touch_the_driver) {
  Environment environment;
  environment.set("HOROVOD_CUDA_DRIVER", path);
  ASSERT_TRUE(open_driver(environment));
  const auto context = open();
  auto memory = make_device_memory(context, 100);
  const auto child = [&] {
    auto again = open_driver(environment);
    *memory = {};
    std::_Exit(!again && has(again.error().message, "forked") ? 0 : 1);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace hvd::cuda
