// What the driver's calls cost, and what happens to work that hangs.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "driver.hpp"
#include "questions.hpp"

namespace probe {

namespace {

constexpr int rounds = 20, calls = 50;  // a queue of work holds about a thousand entries

int attribute(CUdevice_attribute which) {
  int value = 0;
  driver().cuDeviceGetAttribute(&value, which, 0);
  return value;
}

// The mean time of a call, with an empty queue before each round.
template <typename Call>
double time_in_rounds(Gpu& gpu, Call call) {
  double sum = 0;
  for (int round = 0; round < rounds; ++round) {
    driver().cuStreamSynchronize(gpu.stream);
    sum += time_of(calls, call);
  }
  driver().cuStreamSynchronize(gpu.stream);
  return sum / rounds;
}

}  // namespace

void ask_device() {
  char name[128] = "";
  std::size_t bytes = 0;
  int version = 0;
  driver().cuDeviceGetName(name, sizeof name, 0);
  driver().cuDeviceTotalMem(&bytes, 0);
  driver().cuDriverGetVersion(&version);
  for (char* letter = name; *letter != '\0'; ++letter)
    if (*letter == ' ') *letter = '_';
  say("device.name", name, "text");
  say("device.count", driver().device_count(), "devices");
  say("device.memory", static_cast<double>(bytes) / (1 << 30), "GiB");
  say("driver.version", version, "number");
  say("device.capability",
      attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
          attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
      "number");
  say("device.compute_mode", attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE), "number");
  const auto begin = Clock::now();
  Gpu gpu;
  say("device.context", microseconds_since(begin) / 1000, "ms");
}

void ask_events() {
  Gpu gpu;
  CUstream other = nullptr;
  need(driver().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), "events.stream");
  std::vector<CUevent> events;
  for (int i = 0; i < calls; ++i) events.push_back(gpu.event());
  say("event.record",
      time_in_rounds(gpu, [&](int i) { driver().cuEventRecord(events[static_cast<std::size_t>(i)], gpu.stream); }),
      "us");
  say("event.query.come", time_of(10000, [&](int) { driver().cuEventQuery(events[0]); }), "us");
  say("stream.wait.come", time_of(calls, [&](int) { driver().cuStreamWaitEvent(other, events[0], 0); }), "us");
  Word word;
  void* arguments[] = {&word.device};
  need(gpu.launch(gpu.function("hang"), arguments), "events.hang");
  CUevent late = gpu.event();
  driver().cuEventRecord(late, gpu.stream);
  say("event.query.not_come", time_of(10000, [&](int) { driver().cuEventQuery(late); }), "us");
  say("stream.wait.not_come", time_of(calls, [&](int) { driver().cuStreamWaitEvent(other, late, 0); }), "us");
  const auto begin = Clock::now();
  *word.host = 1;
  driver().cuEventSynchronize(late);
  say("event.synchronize.latency", microseconds_since(begin), "us");
}

// A look at a word in mapped memory, against a query; and who writes the word: the stream or a kernel.
void ask_words() {
  Gpu gpu;
  Word word;
  unsigned sum = 0;
  say("word.look", time_of(1000000, [&](int) { sum += *word.host; }), "us");
  say("word.write_value.call",
      time_in_rounds(
          gpu, [&](int i) { driver().cuStreamWriteValue32(gpu.stream, word.device, static_cast<unsigned>(i) + 1, 0); }),
      "us");
  auto seen_after = [&](auto queue) {
    double total = 0;
    for (unsigned value = 1000; value < 1100; ++value) {
      driver().cuStreamSynchronize(gpu.stream);
      const auto begin = Clock::now();
      queue(value);
      while (*word.host != value) continue;
      total += microseconds_since(begin);
    }
    return total / 100;
  };
  say("word.write_value.seen",
      seen_after([&](unsigned value) { driver().cuStreamWriteValue32(gpu.stream, word.device, value, 0); }), "us");
  CUfunction tell = gpu.function("tell");
  *word.host = 0;
  say("word.kernel.seen", seen_after([&](unsigned value) {
        void* arguments[] = {&word.device, &value};
        gpu.launch(tell, arguments);
      }),
      "us");
  CUevent event = gpu.event();
  double total = 0;
  for (int i = 0; i < 100; ++i) {
    const auto begin = Clock::now();
    driver().cuEventRecord(event, gpu.stream);
    while (driver().cuEventQuery(event) == CUDA_ERROR_NOT_READY) continue;
    total += microseconds_since(begin);
  }
  say("word.event_instead.seen", total / 100, "us");
}

void ask_launches() {
  Gpu gpu;
  auto cost = [&](const char* name, std::size_t bytes) {
    CUfunction kernel = gpu.function(name);
    std::vector<char> table(bytes);
    void* arguments[] = {table.data()};
    return time_in_rounds(gpu, [&](int) { gpu.launch(kernel, bytes > 0 ? arguments : nullptr); });
  };
  say("launch.nothing", cost("nothing", 0), "us");
  say("launch.move.4KB", cost("move_small", 4064), "us");
  say("launch.move.32KB", cost("move_large", 32744), "us");
}

// Launches of one thread while another asks for an event all the time.
void ask_contention() {
  Gpu gpu;
  CUfunction nothing = gpu.function("nothing");
  auto launches = [&] { return time_in_rounds(gpu, [&](int) { gpu.launch(nothing, nullptr); }); };
  say("contention.alone", launches(), "us");
  CUevent event = gpu.event();
  driver().cuEventRecord(event, gpu.stream);
  std::atomic<bool> is_over{false};
  std::thread asks([&] {
    driver().cuCtxSetCurrent(gpu.context);
    while (!is_over) driver().cuEventQuery(event);
  });
  say("contention.beside_queries", launches(), "us");
  is_over = true;
  asks.join();
}

void ask_capture() {
  Gpu gpu;
  CUevent event = gpu.event(), other = gpu.event();
  driver().cuEventRecord(other, gpu.stream);
  driver().cuStreamSynchronize(gpu.stream);
  need(driver().cuStreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "capture.begin");
  say("capture.record", driver().text(driver().cuEventRecord(event, gpu.stream)), "result");
  say("capture.query_of_captured", driver().text(driver().cuEventQuery(event)), "result");
  CUgraph graph = nullptr;
  say("capture.end", driver().text(driver().cuStreamEndCapture(gpu.stream, &graph)), "result");
  need(driver().cuStreamBeginCapture(gpu.stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "capture.begin");
  CUresult result = CUDA_SUCCESS;
  std::thread([&] {
    driver().cuCtxSetCurrent(gpu.context);
    result = driver().cuEventQuery(other);
  }).join();
  say("capture.query_of_another_thread", driver().text(result), "result");
  say("capture.end_after_query", driver().text(driver().cuStreamEndCapture(gpu.stream, &graph)), "result");
}

void ask_ptx_70() {
  Gpu gpu;
  const auto begin = Clock::now();
  const CUresult result = gpu.load("kernels_70.ptx");
  say("ptx_70.load", driver().text(result), "result");
  say("ptx_70.load.time", microseconds_since(begin) / 1000, "ms");
}

// A process is killed whose kernel hangs. How long until it is gone, and until another may work?
void ask_kill() {
  int ready[2];
  if (::pipe(ready) != 0) skip("kill", "no_pipe");
  const pid_t child = ::fork();  // before any call of the driver in this process
  if (child == 0) {
    if (!driver().load().empty()) ::_exit(1);
    Gpu gpu;
    Word word;
    void* arguments[] = {&word.device};
    need(gpu.launch(gpu.function("hang"), arguments), "kill.hang");
    static_cast<void>(!::write(ready[1], "x", 1));
    ::pause();
  }
  ::close(ready[1]);
  char letter = 0;
  if (::read(ready[0], &letter, 1) != 1) skip("kill", "no_kernel_hangs");
  const auto begin = Clock::now();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  say("kill.until_reaped", microseconds_since(begin) / 1000, "ms");
  if (!driver().load().empty()) skip("kill.next", "no_driver");
  Gpu gpu;
  gpu.launch(gpu.function("nothing"), nullptr);
  say("kill.next", driver().text(driver().cuStreamSynchronize(gpu.stream)), "result");
  say("kill.until_next", microseconds_since(begin) / 1000, "ms");
}

}  // namespace probe
