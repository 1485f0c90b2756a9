// The double of the driver itself: what it finds, and how it fails. The engine under it has tests of its own.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "devices/cuda/launches.hpp"
#include "devices/kernels/kernel_names.hpp"
#include "doubles/cuda/control.h"
#include "native/cuda/owners.hpp"
#include "native/posix/plugins/shared_library.hpp"

namespace hvd::cuda {
namespace {

using devices::Move;

class CudaDouble : public ::testing::Test {
 protected:
  CudaDouble() : driver(*load_driver(HVD_CUDA_DOUBLE)), context(*Context::open(driver, 0)), use(*context) {
    EXPECT_EQ(driver.module_load(&module, ".version 7.8"), Code::success);
    for (auto& memory : memories) memory = std::move(*make_device_memory(context, bytes));
    for (auto& pages : page_locked) pages = std::move(*make_page_locked(context, bytes));
  }
  ~CudaDouble() override { EXPECT_EQ(driver.module_unload(module), Code::success); }

  Address device(int i) const { return memories[static_cast<std::size_t>(i)].get(); }
  std::byte* host(int i) const { return static_cast<std::byte*>(page_locked[static_cast<std::size_t>(i)].get()); }
  Address at(const void* pointer) const { return reinterpret_cast<Address>(pointer); }
  // The findings since the last call.
  static std::string findings() {
    std::string all;
    hvd_double_take_findings([](void* text, const char* one) { *static_cast<std::string*>(text) += one; }, &all);
    return all;
  }
  Code launch(const char* name, unsigned blocks, void* parameters, StreamHandle on) const {
    FunctionHandle function = nullptr;
    if (const Code code = driver.module_function(&function, module, name); code != Code::success) return code;
    void* list[] = {parameters};
    return driver.launch(function, blocks, 1, 1, devices::cuda::threads_per_block, 1, 1, 0, on, list, nullptr);
  }

  static constexpr std::size_t bytes = 100000;
  const Driver driver;
  const std::shared_ptr<const Context> context;
  const Context::Use use;
  ModuleHandle module = nullptr;
  OwnStream stream = std::move(*make_stream(context, 0)), other = std::move(*make_stream(context, 0));
  DeviceMemory memories[3];
  PageLocked page_locked[2];
};

TEST_F(CudaDouble, finds_a_wait_that_is_missing_and_none_that_is_there) {
  std::memset(host(0), 7, bytes);
  EXPECT_EQ(driver.copy(device(0), at(host(0)), bytes, stream.get()), Code::success);
  auto event = make_event(context);
  EXPECT_EQ(driver.event_record(event->get(), stream.get()), Code::success);
  EXPECT_EQ(driver.stream_wait(other.get(), event->get(), 0), Code::success);
  EXPECT_EQ(driver.copy(at(host(1)), device(0), bytes, other.get()), Code::success);
  EXPECT_EQ(driver.stream_synchronize(other.get()), Code::success);
  EXPECT_EQ(host(1)[bytes - 1], std::byte{7});
  EXPECT_EQ(findings(), "");
  EXPECT_EQ(driver.fill_bytes(device(0), 1, bytes, stream.get()), Code::success);
  EXPECT_EQ(driver.copy(at(host(1)), device(0), bytes, other.get()), Code::success);
  EXPECT_NE(findings().find("no wait orders work that reads memory after earlier work that writes it"),
            std::string::npos);
}

TEST_F(CudaDouble, runs_our_kernels_on_lists_that_are_still_being_copied) {
  constexpr std::size_t tensors = 300;
  const devices::cuda::Chip chip{3};
  std::vector<Move> moves;
  std::memset(host(0), 5, bytes);
  EXPECT_EQ(driver.copy(device(0), at(host(0)), bytes, stream.get()), Code::success);
  for (std::size_t i = 0; i < tensors; ++i)
    moves.push_back({reinterpret_cast<const void*>(device(0) + 100 * i),
                     reinterpret_cast<void*>(device(1) + 100 * (tensors - 1 - i)), 25});
  const std::size_t needed = devices::cuda::descriptors_of_moves(tensors, chip);
  ASSERT_LE(needed, bytes);
  devices::cuda::MoveList list;
  auto planned =
      devices::cuda::launch_moves(moves, {DataType::f32, DataType::f32, 1.0}, chip,
                                  {host(1), reinterpret_cast<const std::byte*>(device(2)), bytes}, nullptr, list);
  ASSERT_TRUE(planned);
  EXPECT_EQ(driver.copy(device(2), at(host(1)), planned->descriptor_bytes, stream.get()), Code::success);
  EXPECT_EQ(launch("hvd_move_bytes", planned->blocks, &list, stream.get()), Code::success);
  EXPECT_EQ(driver.copy(at(host(0)), device(1), 100 * tensors, stream.get()), Code::success);
  EXPECT_EQ(driver.stream_synchronize(stream.get()), Code::success);
  for (std::size_t i = 0; i < 100 * tensors; ++i) ASSERT_EQ(host(0)[i], std::byte{5}) << i;
  // Without a wait, a look at what the kernel writes is a race, on any stream.
  EXPECT_EQ(launch("hvd_move_bytes", planned->blocks, &list, stream.get()), Code::success);
  EXPECT_EQ(driver.fill_bytes(device(1), 0, bytes, other.get()), Code::success);
  EXPECT_NE(findings().find("'hvd_move_bytes'"), std::string::npos);
}

TEST_F(CudaDouble, teaches_the_host_by_a_word_what_the_stream_has_done) {
  auto* word = reinterpret_cast<std::uint32_t*>(host(1));
  *word = 0;
  for (const bool is_kernel : {false, true}) {
    std::memset(host(0), 1, 100);
    EXPECT_EQ(driver.copy(device(0), at(host(0)), 100, stream.get()), Code::success);
    const std::uint32_t number = is_kernel ? 2 : 1;
    devices::cuda::SignalList list{word, number};
    EXPECT_EQ(
        is_kernel ? launch("hvd_signal", 1, &list, stream.get()) : driver.write_word(stream.get(), at(word), number, 0),
        Code::success);
    while (std::atomic_ref(*word).load() != number) continue;
    host(0)[0] = std::byte{2};  // which the copy has read
    EXPECT_EQ(findings(), "");
  }
  EXPECT_EQ(driver.copy(device(0), at(host(0)), 100, stream.get()), Code::success);
  host(0)[0] = std::byte{3};
  EXPECT_NE(findings().find("the host writes page-locked memory that work on a stream reads"), std::string::npos);
  EXPECT_EQ(driver.stream_synchronize(stream.get()), Code::success);
}

TEST_F(CudaDouble, fails_in_all_calls_after_a_kernel_that_failed) {
  hvd_double_fail_kernel("hvd_poison", static_cast<int>(Code::illegal_address), 0);
  devices::cuda::MoveList list{};
  EXPECT_EQ(launch("hvd_poison", 1, &list, stream.get()), Code::success);
  EXPECT_EQ(driver.stream_synchronize(stream.get()), Code::illegal_address);
  EXPECT_EQ(driver.fill_bytes(device(0), 0, 1, stream.get()), Code::illegal_address);
  hvd_double_reset();
}

TEST_F(CudaDouble, breaks_a_capture_when_another_thread_looks_and_is_not_relaxed) {
  using Begin = Code (*)(StreamHandle, CaptureMode);
  using End = Code (*)(StreamHandle, void**);
  auto library = posix::SharedLibrary::open(HVD_CUDA_DOUBLE, 2);
  ASSERT_TRUE(library);
  auto begin = reinterpret_cast<Begin>(library->symbol("cuStreamBeginCapture_v2"));
  auto end = reinterpret_cast<End>(library->symbol("cuStreamEndCapture"));
  auto event = make_event(context);
  EXPECT_EQ(driver.event_record(event->get(), other.get()), Code::success);
  for (const CaptureMode mode : {CaptureMode::global, CaptureMode::relaxed}) {
    EXPECT_EQ(begin(stream.get(), CaptureMode::global), Code::success);
    CaptureMode mine = mode;
    EXPECT_EQ(driver.exchange_capture_mode(&mine), Code::success);
    static_cast<void>(driver.event_query(event->get()));
    EXPECT_EQ(driver.exchange_capture_mode(&mine), Code::success);
    void* graph = nullptr;
    EXPECT_EQ(end(stream.get(), &graph) == Code::success, mode == CaptureMode::relaxed);
  }
  EXPECT_EQ(driver.stream_synchronize(other.get()), Code::success);
}

TEST_F(CudaDouble, knows_a_stream_that_was_destroyed) {
  const StreamHandle gone = other.get();
  other = {};
  EXPECT_EQ(driver.fill_bytes(device(0), 0, 1, gone), Code::invalid_handle);
  EXPECT_NE(findings().find("a stream is used that was destroyed"), std::string::npos);
}

}  // namespace
}  // namespace hvd::cuda
