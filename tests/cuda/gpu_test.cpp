// The shipped plugin for GPUs on the double of the driver: it is a device as every other (every_device.hpp), and here
// is what is particular about it.
#include <gtest/gtest.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

#include <stdlib.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "devices/cuda/plugin.hpp"
#include "devices/every_device.hpp"
#include "doubles/cuda/control.h"
#include "native/cuda/owners.hpp"
#include "native/posix/plugins/shared_library.hpp"

namespace hvd::devices {

namespace {

Environment environment_of_double() {
  Environment environment;
  environment.set("HOROVOD_CUDA_DRIVER", HVD_CUDA_DOUBLE);
  return environment;
}

Result<std::unique_ptr<Device>> open_gpu(int ordinal, const Environment& environment = environment_of_double()) {
  auto plugin = posix::open_plugin<cuda::Plugin>("cuda", environment);
  if (!plugin) return plugin.error();
  return (*plugin)->open(ordinal, environment);
}

std::unique_ptr<Device> a_gpu() {
  auto device = open_gpu(0);
  EXPECT_TRUE(device) << device.error().message;
  return std::move(*device);
}

}  // namespace

std::vector<Named> all_devices() {
  return {{"cuda", &a_gpu}};
}

namespace {

using hvd::cuda::Code;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A GPU that has failed, and a driver that has ended, take nothing back. What is made while this lives is no leak.
class NothingIsTakenBack {
 public:
#if defined(__SANITIZE_ADDRESS__)
  NothingIsTakenBack() {
    __lsan_disable();
  }
  ~NothingIsTakenBack() {
    __lsan_enable();
  }
#else
  NothingIsTakenBack() {}
#endif
  NothingIsTakenBack(const NothingIsTakenBack&) = delete;
  NothingIsTakenBack& operator=(const NothingIsTakenBack&) = delete;
};

class GpuOnDouble : public ::testing::Test {
 protected:
  GpuOnDouble() : driver(*hvd::cuda::load_driver(HVD_CUDA_DOUBLE)), context(*hvd::cuda::Context::open(driver, 0)) {}
  void open(const Environment& environment = environment_of_double()) {
    auto opened = open_gpu(0, environment);
    ASSERT_TRUE(opened) << opened.error().message;
    device = std::move(*opened);
    own = device->stream().value();
    stream = {own.get()};
  }
  void TearDown() override {
    own.reset();
    device.reset();
  }
  Memory memory_of(std::size_t bytes, Stream user) {
    auto memory = device->allocate(bytes, Where::on_device, user);
    EXPECT_TRUE(memory) << memory.error().message;
    return std::move(*memory);
  }
  Memory memory_of(std::size_t bytes) { return memory_of(bytes, stream); }
  Status move(const void* from, void* to, std::int64_t bytes, double scale = 1.0) {
    const Move one{from, to, bytes};
    return device->move(stream, {&one, 1}, {DataType::u8, DataType::u8, scale});
  }
  // Sleeps until the event has come, or the device has failed.
  Result<bool> sleep_until(Event event) {
    posix::WaitWord word;
    for (;;) {
      const std::uint32_t announced = word.announce();
      auto there = device->query(event, &word);
      if (!there || *there) {
        word.retract();
        return there;
      }
      word.sleep(announced, posix::WaitWord::forever);
    }
  }
  static std::size_t driver_calls() {
    std::size_t calls = 0;
    for (const char* name : {"cuEventQuery", "cuStreamQuery", "cuStreamSynchronize", "cuEventSynchronize"})
      calls += hvd_double_calls_of_thread(name);
    return calls;
  }
  static std::string findings() {
    std::string all;
    hvd_double_take_findings([](void* text, const char* one) { *static_cast<std::string*>(text) += one; }, &all);
    return all;
  }

  const hvd::cuda::Driver driver;
  const std::shared_ptr<const hvd::cuda::Context> context;
  std::unique_ptr<Device> device;
  std::shared_ptr<void> own;
  Stream stream;
};

TEST_F(GpuOnDouble, is_refused_with_the_reason_of_the_driver) {
  hvd_double_set_mode(0, static_cast<int>(hvd::cuda::ComputeMode::exclusive_process), 1);
  auto taken = open_gpu(0);
  ASSERT_FALSE(taken);
  EXPECT_TRUE(has(taken.error().message, "exclusive mode")) << taken.error().message;
  auto beyond = open_gpu(5);
  ASSERT_FALSE(beyond);
  EXPECT_TRUE(has(beyond.error().message, "this process sees 2 GPUs")) << beyond.error().message;
}

TEST_F(GpuOnDouble, is_never_asked_for_events_by_the_thread_that_looks_at_them) {
  for (const bool has_words_of_driver : {true, false}) {
    if (!has_words_of_driver) hvd_double_refuse("cuStreamWriteValue32_v2", static_cast<int>(Code::not_supported), 0, 1);
    open();
    Memory memory = memory_of(1000);
    const std::size_t before = driver_calls();
    hvd_double_hold(stream.handle);
    EXPECT_TRUE(move(nullptr, memory.data(), 1000));
    auto event = device->record(stream);
    ASSERT_TRUE(event);
    EXPECT_FALSE(*device->query(*event, nullptr));
    hvd_double_let_go(stream.handle);
    EXPECT_TRUE(*sleep_until(*event));
    EXPECT_EQ(driver_calls(), before);
    memory = {};
    TearDown();
  }
}

// A copy of the driver between kernels would stop the stream for as long as 64 MB take.
TEST_F(GpuOnDouble, gets_hundreds_of_tensors_in_one_launch_and_their_list_in_another) {
  open();
  constexpr std::size_t tensors = 800, bytes = 100;
  Memory from = memory_of(tensors * bytes), to = memory_of(tensors * bytes);
  std::vector<Move> moves;
  for (std::size_t i = 0; i < tensors; ++i)
    moves.push_back({from.data() + i * bytes, to.data() + i * bytes, bytes / 4});
  for (int round = 0; round < 3; ++round) {
    const std::size_t launches = hvd_double_calls("cuLaunchKernel"), lists = hvd_double_calls("cuMemcpyHtoDAsync_v2"),
                      copies = hvd_double_calls("cuMemcpyAsync");
    EXPECT_TRUE(device->move(stream, moves, {DataType::f32, DataType::f32, 1.0}));
    EXPECT_EQ(hvd_double_calls("cuLaunchKernel") - launches, 2u);
    EXPECT_EQ(hvd_double_calls("cuMemcpyHtoDAsync_v2") - lists, 0u);
    EXPECT_EQ(hvd_double_calls("cuMemcpyAsync") - copies, 0u);
  }
  finish(*device, stream);
}

TEST_F(GpuOnDouble, leaves_few_tensors_and_large_ones_of_the_host_to_the_copy_engines) {
  open();
  constexpr std::size_t bytes = 1 << 20;
  Memory from = memory_of(3 * bytes), to = memory_of(3 * bytes);
  Memory host = std::move(*device->allocate(3 * bytes, Where::on_host, {}));
  const auto copies_of = [&](std::byte* source, std::byte* target, std::size_t tensors) {
    std::vector<Move> moves;
    for (std::size_t i = 0; i < tensors; ++i) moves.push_back({source + i * bytes, target + i * bytes, bytes});
    const std::size_t copies = hvd_double_calls("cuMemcpyAsync");
    EXPECT_TRUE(device->move(stream, moves, {DataType::u8, DataType::u8, 1.0}));
    finish(*device, stream);
    return hvd_double_calls("cuMemcpyAsync") - copies;
  };
  EXPECT_EQ(copies_of(from.data(), to.data(), 1), 1u);
  EXPECT_EQ(copies_of(from.data(), to.data(), 3), 0u);
  EXPECT_EQ(copies_of(host.data(), to.data(), 3), 3u);
  EXPECT_EQ(copies_of(from.data(), host.data(), 3), 3u);
}

TEST_F(GpuOnDouble, has_no_more_lists_under_way_than_it_has_memory_for_and_gets_more) {
  open();
  constexpr std::size_t tensors = 200;
  Memory from = memory_of(tensors * 4), to = memory_of(tensors * 4);
  std::vector<Move> moves;
  for (std::size_t i = 0; i < tensors; ++i) moves.push_back({from.data() + 4 * i, to.data() + 4 * i, 1});
  hvd_double_hold(stream.handle);
  for (int round = 0; round < 40; ++round)
    EXPECT_TRUE(device->move(stream, moves, {DataType::f32, DataType::f32, 2.0}));
  hvd_double_let_go(stream.handle);
  finish(*device, stream);
}

TEST_F(GpuOnDouble, copies_one_by_one_where_no_kernel_can_be_loaded_and_says_what_it_cannot) {
  hvd_double_refuse_image(0, static_cast<int>(Code::no_binary_for_gpu));
  hvd_double_refuse_image(1, static_cast<int>(Code::invalid_ptx));
  for (const bool has_words : {true, false}) {
    if (!has_words) hvd_double_refuse("cuStreamWriteValue32_v2", static_cast<int>(Code::not_supported), 0, 1);
    open();
    Memory memory = memory_of(30);
    std::vector<Move> moves;
    for (int i = 0; i < 10; ++i) moves.push_back({nullptr, memory.data() + 3 * i, 3});
    const std::size_t fills = hvd_double_calls("cuMemsetD8Async");
    EXPECT_TRUE(device->move(stream, moves, {DataType::u8, DataType::u8, 1.0}));
    EXPECT_EQ(hvd_double_calls("cuMemsetD8Async") - fills, 10u);
    const Status scaled = move(memory.data(), memory.data(), 3, 2.0);
    ASSERT_FALSE(scaled);
    EXPECT_TRUE(has(scaled.error().message, "cannot be scaled or converted on a GPU: the kernels of Horovod"))
        << scaled.error().message;
    auto event = device->record(stream);
    ASSERT_TRUE(event);
    EXPECT_TRUE(*sleep_until(*event));
    memory = {};
    TearDown();
  }
}

TEST_F(GpuOnDouble, takes_the_PTX_where_the_machine_code_is_refused) {
  hvd_double_refuse_image(0, static_cast<int>(Code::no_binary_for_gpu));
  open();
  Memory memory = memory_of(100);
  EXPECT_TRUE(move(memory.data(), memory.data(), 100, 2.0));
  finish(*device, stream);
}

TEST_F(GpuOnDouble, copies_one_by_one_where_the_user_wants_it_in_any_word_for_off) {
  for (const char* word : {"0", "off", "no", "False", " 0"}) {
    Environment environment = environment_of_double();
    environment.set("HOROVOD_BATCH_D2D_MEMCOPIES", word);
    open(environment);
    Memory memory = memory_of(100);
    std::vector<Move> moves;
    for (int i = 0; i < 10; ++i) moves.push_back({memory.data() + i, memory.data() + 50 + i, 1});
    const std::size_t launches = hvd_double_calls("cuLaunchKernel");
    EXPECT_TRUE(device->move(stream, moves, {DataType::u8, DataType::u8, 1.0}));
    EXPECT_EQ(hvd_double_calls("cuLaunchKernel"), launches) << word;
    finish(*device, stream);
  }
}

TEST_F(GpuOnDouble, uses_memory_again_in_the_order_of_streams_and_allocates_none_in_steady_state) {
  open();
  auto other = device->stream().value();
  Memory memory = memory_of(1000);
  void* const first = memory.data();
  hvd_double_hold(stream.handle);
  EXPECT_TRUE(move(nullptr, memory.data(), 1000));
  memory = {};
  Memory of_same = memory_of(1000), of_other = memory_of(1000, {other.get()});
  EXPECT_EQ(of_same.data(), first) << "the stream keeps the order";
  EXPECT_NE(of_other.data(), first);
  of_same = {};
  Memory of_nobody = memory_of(1000, {});
  EXPECT_NE(of_nobody.data(), first) << "the stream is not there yet";
  hvd_double_let_go(stream.handle);
  finish(*device, stream);
  const std::size_t allocated = hvd_double_calls("cuMemAlloc_v2") + hvd_double_calls("cuMemHostAlloc");
  for (int step = 0; step < 20; ++step) {
    Memory again = memory_of(1000);
    auto pages = device->allocate(1000, Where::on_host, stream);
    ASSERT_TRUE(pages);
    EXPECT_TRUE(move(again.data(), pages->data(), 1000));
    *pages = {};
    again = {};
    finish(*device, stream);
  }
  EXPECT_LE(hvd_double_calls("cuMemAlloc_v2") + hvd_double_calls("cuMemHostAlloc"), allocated + 1);
}

TEST_F(GpuOnDouble, has_page_locked_memory_next_to_it_if_the_kernel_tells_where_that_is) {
  std::string folder = ::testing::TempDir() + "horovod-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  Environment environment = environment_of_double();
  environment.set("HOROVOD_GPU_ROOT", folder);
  const std::string place = "/sys/bus/pci/devices/" + context->facts().bus_id;
  const auto node_asked_for = [&](const std::string& node) {
    std::filesystem::create_directories(folder + place);
    std::ofstream(folder + place + "/numa_node") << node << "\n";
    open(environment);
    std::filesystem::remove_all(folder);
    EXPECT_TRUE(device->allocate(1 << 20, Where::on_host, {}));
    return hvd_double_memory_node();
  };
  EXPECT_EQ(node_asked_for("-1"), -1);
  EXPECT_EQ(node_asked_for("900"), -1) << "there is no such node here";
  if (const posix::NearMemory near(0); posix::preferred_memory_node() == -1)
    GTEST_SKIP() << "the kernel, or a container, refuses policies of memory";
  EXPECT_EQ(node_asked_for("0"), 0);
  EXPECT_EQ(posix::preferred_memory_node(), -1) << "the thread is as before";
}

TEST_F(GpuOnDouble, gives_the_drivers_memory_back_before_it_has_none_and_then_says_so) {
  open();
  std::size_t used = 0, total = 0;
  {
    const hvd::cuda::Context::Use use(*context);
    ASSERT_EQ(driver.memory_info(&used, &total), Code::success);
  }
  hvd_double_set_memory(4 << 20);
  for (int i = 0; i < 3; ++i) memory_of(std::size_t{1 + static_cast<std::size_t>(i)} << 20);  // each is given back
  finish(*device, stream);
  Memory all = memory_of(3 << 20);
  auto more = device->allocate(2 << 20, Where::on_device, stream);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, ErrorCode::out_of_memory);
  EXPECT_TRUE(has(more.error().message, "no memory for 2097152 bytes")) << more.error().message;
  EXPECT_TRUE(move(nullptr, all.data(), 100)) << "all goes on";
  finish(*device, stream);
}

TEST_F(GpuOnDouble, tells_everybody_the_first_error_of_a_kernel_that_failed) {
  const NothingIsTakenBack leaves;
  open();
  Memory memory = memory_of(100);
  hvd_double_fail_kernel("hvd_scale_u8", static_cast<int>(Code::ecc_uncorrectable), 0);
  hvd_double_hold(stream.handle);
  EXPECT_TRUE(move(memory.data(), memory.data(), 100, 2.0));
  auto event = device->record(stream);
  ASSERT_TRUE(event);
  hvd_double_let_go(stream.handle);
  auto end = sleep_until(*event);
  ASSERT_FALSE(end);
  EXPECT_TRUE(has(end.error().message,
                  "the work of a stream has failed on cuda device 0: "
                  "CUDA_ERROR_ECC_UNCORRECTABLE (214"))
      << end.error().message;
  for (const Status& status : {move(nullptr, memory.data(), 1), device->wait(stream, *event)}) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().message, end.error().message);
  }
  EXPECT_FALSE(device->record(stream));
  EXPECT_FALSE(device->allocate(1, Where::on_device, stream));
  EXPECT_FALSE(device->stream());
  memory = {};
  TearDown();
  hvd_double_reset();
}

TEST_F(GpuOnDouble, wakes_who_sleeps_when_the_device_fails_for_no_reason_of_ours) {
  const NothingIsTakenBack leaves;
  open();
  hvd_double_hold(stream.handle);
  auto event = device->record(stream);
  ASSERT_TRUE(event);
  std::thread failing([] { hvd_double_fail(static_cast<int>(Code::unknown)); });
  auto end = sleep_until(*event);
  failing.join();
  ASSERT_FALSE(end);
  EXPECT_TRUE(has(end.error().message, "dmesg has a line with Xid")) << end.error().message;
  TearDown();
  hvd_double_reset();
}

TEST_F(GpuOnDouble, reports_a_launch_that_the_driver_refuses_and_goes_on) {
  open();
  Memory memory = memory_of(100);
  hvd_double_refuse("cuLaunchKernel", 701, 0, 0);
  const Status refused = move(memory.data(), memory.data(), 100, 2.0);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(has(refused.error().message, "hvd_scale_u8 on cuda device 0: an unknown error (701)"))
      << refused.error().message;
  EXPECT_TRUE(move(memory.data(), memory.data(), 100, 2.0));
  finish(*device, stream);
}

TEST_F(GpuOnDouble, orders_streams_of_the_program_also_those_that_end_before_their_work) {
  open();
  const Stream legacy{reinterpret_cast<void*>(1)}, per_thread{reinterpret_cast<void*>(2)};
  Memory memory = memory_of(1000);
  EXPECT_TRUE(move(nullptr, memory.data(), 1000));
  auto written = device->record(stream);
  ASSERT_TRUE(written);
  const hvd_double_range range{memory.data(), 1000};
  auto work = [&](void* handle) {
    return hvd_double_launch(
        handle, "of the program", &range, 1, &range, 1, [](void*) {}, nullptr);
  };
  const hvd::cuda::Context::Use use(*context);
  Event last = *written;
  for (const Stream of_program : {legacy, per_thread}) {
    EXPECT_TRUE(device->wait(of_program, last));
    EXPECT_EQ(work(of_program.handle), 0);
    auto event = device->record(of_program);
    ASSERT_TRUE(event);
    last = *event;
  }
  Event ended;
  {
    auto mine = hvd::cuda::make_stream(context, 0);
    EXPECT_TRUE(device->wait({mine->get()}, last));
    EXPECT_EQ(work(mine->get()), 0);
    ended = device->record({mine->get()}).value();
  }
  EXPECT_TRUE(device->wait(stream, ended));
  EXPECT_TRUE(move(nullptr, memory.data(), 1000));
  EXPECT_TRUE(*sleep_until(ended));
  finish(*device, stream);
}

TEST_F(GpuOnDouble, uses_events_of_the_programs_streams_again) {
  open();
  const auto late = hvd::cuda::make_stream(context, 0), other = hvd::cuda::make_stream(context, 0);
  hvd_double_hold(late->get());
  const std::size_t before = hvd_double_calls("cuEventCreate");
  for (int i = 0; i < 100; ++i) {
    for (const Stream of_program : {Stream{i < 3 ? late->get() : other->get()}, Stream{other->get()}}) {
      auto ready = device->record(of_program);
      ASSERT_TRUE(ready) << ready.error().message;
      EXPECT_TRUE(device->wait(stream, *ready));
    }
    if (i == 2) hvd_double_let_go(late->get());
    if (i >= 2) finish(*device, stream);
  }
  EXPECT_LE(hvd_double_calls("cuEventCreate"), before + 12);
}

// Each call costs the host time, for each tensor.
TEST_F(GpuOnDouble, asks_the_driver_no_more_than_it_must_for_a_tensor) {
  open();
  const hvd::cuda::Context::Use use(*context);
  const auto made = hvd::cuda::make_stream(context, 0);
  const Stream by_default{hvd::cuda::default_stream()}, of_program{made->get()};
  const auto calls_for = [&](const auto& use_of_device) {
    const std::size_t before = hvd_double_calls_of_thread(nullptr);
    EXPECT_TRUE(use_of_device());
    return hvd_double_calls_of_thread(nullptr) - before;
  };
  const auto calls_to_wait = [&](Stream user, Event event) {
    return calls_for([&] { return device->wait(user, event); });
  };
  const auto calls_to_record = [&](Stream user) { return calls_for([&] { return device->record(user); }); };

  const Event past = device->record(stream).value();
  EXPECT_TRUE(*sleep_until(past));
  EXPECT_EQ(calls_to_wait(stream, past), 0u);
  EXPECT_EQ(calls_to_wait(by_default, past), 0u);
  EXPECT_EQ(calls_to_wait(of_program, past), 4u) << "it may be captured";
  hvd_double_hold(stream.handle);
  const Event late = device->record(stream).value();
  EXPECT_EQ(calls_to_wait(by_default, late), 5u);
  EXPECT_EQ(calls_to_wait(by_default, late), 0u);
  EXPECT_EQ(calls_to_wait(of_program, late), 6u);
  EXPECT_EQ(calls_to_wait(of_program, late), 5u) << "its handle may be that of an older stream";
  hvd_double_let_go(stream.handle);
  finish(*device, stream);
  for (const Stream user : {by_default, of_program}) {
    finish(*device, user);
    EXPECT_EQ(calls_to_record(user), 5u);
  }
  EXPECT_EQ(calls_to_record(stream), 5u);
  Memory memory = memory_of(1000);
  EXPECT_EQ(calls_for([&] { return move(memory.data(), memory.data(), 1000, 2.0); }), 4u);
  finish(*device, stream);
  const std::vector<Move> moves(200, Move{memory.data(), memory.data(), 1});
  const auto move_many = [&] { return device->move(stream, moves, {DataType::u8, DataType::u8, 2.0}); };
  EXPECT_TRUE(move_many());
  finish(*device, stream);
  const std::size_t events = hvd_double_calls_of_thread("cuEventRecord");
  EXPECT_EQ(calls_for(move_many), 9u) << "two launches and a word for the host";
  EXPECT_EQ(hvd_double_calls_of_thread("cuEventRecord"), events);
  finish(*device, stream);
  memory = {};
  EXPECT_EQ(calls_for([&] {
              memory = memory_of(1000);
              return true;
            }),
            0u);
}

TEST_F(GpuOnDouble, lets_each_stream_wait_though_it_has_the_handle_of_an_older_one) {
  open();
  const hvd::cuda::Context::Use use(*context);
  hvd_double_use_handles_again(1);
  for (const bool has_numbers : {true, false}) {
    if (!has_numbers) hvd_double_refuse("cuStreamGetId", static_cast<int>(Code::not_supported), 0, 1);
    Memory memory = memory_of(1000);
    hvd_double_hold(stream.handle);
    EXPECT_TRUE(move(nullptr, memory.data(), 1000));
    const Event written = device->record(stream).value();
    auto older = hvd::cuda::make_stream(context, 0);
    void* const handle = older->get();
    EXPECT_TRUE(device->wait({handle}, written));
    *older = {};
    auto younger = hvd::cuda::make_stream(context, 0);
    ASSERT_EQ(younger->get(), handle);
    EXPECT_TRUE(device->wait({handle}, written));
    const hvd_double_range range{memory.data(), 1000};
    EXPECT_EQ(hvd_double_launch(
                  handle, "of the program", &range, 1, &range, 1, [](void*) {}, nullptr),
              0);
    EXPECT_TRUE(device->wait(stream, device->record({handle}).value()));
    hvd_double_let_go(stream.handle);
    finish(*device, stream);
    EXPECT_EQ(findings(), "");
    memory = {};
  }
}

TEST_F(GpuOnDouble, records_on_no_stream_of_another_gpu_but_lets_it_wait) {
  open();
  const auto elsewhere = *hvd::cuda::Context::open(driver, 1);
  auto foreign = hvd::cuda::make_stream(elsewhere, 0);
  const auto refused = device->record({foreign->get()});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(has(refused.error().message, "no stream of cuda device 0")) << refused.error().message;
  hvd_double_hold(stream.handle);
  EXPECT_TRUE(device->wait({foreign->get()}, device->record(stream).value()));
  hvd_double_let_go(stream.handle);
  const hvd::cuda::Context::Use use(*elsewhere);
  EXPECT_EQ(driver.stream_synchronize(foreign->get()), Code::success);
}

TEST_F(GpuOnDouble, refuses_a_stream_that_is_captured_and_breaks_no_capture) {
  open();
  const hvd::cuda::Context::Use use(*context);
  auto library = posix::SharedLibrary::open(HVD_CUDA_DOUBLE, 2);
  auto begin = reinterpret_cast<Code (*)(hvd::cuda::StreamHandle, hvd::cuda::CaptureMode)>(
      library->symbol("cuStreamBeginCapture_v2"));
  auto end = reinterpret_cast<Code (*)(hvd::cuda::StreamHandle, void**)>(library->symbol("cuStreamEndCapture"));
  auto captured = hvd::cuda::make_stream(context, 0);
  Memory kept = memory_of(1000, {captured->get()});
  ASSERT_EQ(begin(captured->get(), hvd::cuda::CaptureMode::global), Code::success);
  auto refused = device->record({captured->get()});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(has(refused.error().message, "captured for a CUDA graph")) << refused.error().message;
  EXPECT_FALSE(device->wait({captured->get()}, Event{}));
  kept = {};  // in the middle of the capture
  Memory memory = memory_of(12345);
  EXPECT_TRUE(move(nullptr, memory.data(), 100));
  auto event = device->record(stream);
  ASSERT_TRUE(event);
  EXPECT_TRUE(*sleep_until(*event));
  auto foreign = device->record({reinterpret_cast<void*>(1)});
  ASSERT_TRUE(foreign);
  EXPECT_TRUE(*sleep_until(*foreign));
  void* graph = nullptr;
  EXPECT_EQ(end(captured->get(), &graph), Code::success) << "a call of ours has broken the capture";
}

TEST_F(GpuOnDouble, leaves_memory_to_owners_that_outlive_it) {
  open();
  Memory memory = memory_of(100), second = memory_of(100);
  EXPECT_TRUE(move(nullptr, memory.data(), 100));
  auto parts = memory.release();
  finish(*device, stream);
  TearDown();
  std::thread([&] { parts.free_owner(parts.owner); }).join();
  second = {};
  EXPECT_EQ(hvd_double_allocations(), 0u);
}

TEST_F(GpuOnDouble, ends_though_work_of_the_program_does_not_and_gives_all_back_after_it) {
  const std::size_t before = hvd_double_allocations();
  Environment environment = environment_of_double();
  environment.set("HOROVOD_PEER_TIMEOUT", "1");
  open(environment);
  static_cast<void>(memory_of(1000));
  auto of_program = hvd::cuda::make_stream(context, 0);
  hvd_double_hold(of_program->get());
  EXPECT_TRUE(device->record({of_program->get()}));
  own.reset();
  device.reset();
  EXPECT_GT(hvd_double_allocations(), before);
  hvd_double_let_go(of_program->get());
  while (hvd_double_allocations() > before) std::this_thread::yield();
}

TEST_F(GpuOnDouble, ends_quietly_after_the_driver) {
  const NothingIsTakenBack leaves;
  open();
  Memory memory = memory_of(100);
  finish(*device, stream);
  hvd_double_end();
  memory = {};
  TearDown();
  hvd_double_reset();
}

TEST_F(GpuOnDouble, is_dropped_by_a_forked_child_that_does_not_touch_the_driver) {
  open();
  Memory memory = memory_of(100);
  posix::WaitWord word;
  static_cast<void>(device->query(device->record(stream).value(), &word));  // now there is a thread
  finish(*device, stream);
  const auto child = [&] {
    memory = {};
    TearDown();
    std::_Exit(0);
  };
  EXPECT_EXIT(child(), ::testing::ExitedWithCode(0), "");
  static_cast<void>(device->query(device->record(stream).value(), &nobody()));
  finish(*device, stream);
}

// Each thread passes its memory on to the next one through its own stream, by events alone.
TEST_F(GpuOnDouble, keeps_the_order_between_streams_of_several_threads) {
  open();
  constexpr int threads = 3, rounds = 12;
  std::vector<std::shared_ptr<void>> streams;
  for (int i = 0; i < threads; ++i) streams.push_back(device->stream().value());
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      const Stream mine{streams[static_cast<std::size_t>(i)].get()};
      auto second = device->stream().value();
      for (int round = 0; round < rounds; ++round) {
        const auto count = static_cast<std::int64_t>(random() % 3000 + 1);
        auto memory = device->allocate(static_cast<std::size_t>(count) * 4, Where::on_device, mine);
        auto pages = device->allocate(static_cast<std::size_t>(count) * 4, Where::on_host, {second.get()});
        ASSERT_TRUE(memory && pages);
        const Move there{nullptr, memory->data(), count}, back{memory->data(), pages->data(), count};
        ASSERT_TRUE(device->move(mine, {&there, 1}, {DataType::f32, DataType::f32, 1.0}));
        ASSERT_TRUE(device->wait({second.get()}, device->record(mine).value()));
        ASSERT_TRUE(device->move({second.get()}, {&back, 1}, {DataType::f32, DataType::f32, 2.0}));
        const Event end = device->record({second.get()}).value();
        ASSERT_TRUE(device->wait(mine, end));
        if (random() % 2 == 0) {
          ASSERT_TRUE(*sleep_until(end));
          EXPECT_EQ(*reinterpret_cast<const float*>(pages->data()), 0.0f);
        }
      }
      finish(*device, mine);
      finish(*device, {second.get()});
    });
  for (std::thread& thread : all) thread.join();
}

}  // namespace
}  // namespace hvd::devices
