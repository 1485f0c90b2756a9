// Confirms from outside what the library's counters say, with the same 200 named allreduces in each step. In the steady
// state nothing is allocated, no message carries a string, and nothing is planned. When no operation is in flight, the
// engine never wakes up.
//
// "From outside" has two parts. This program defines malloc and its siblings, so that it counts every allocation of the
// process, also the library's. And the kernel counts the context switches of the engine's thread.
#include <dirent.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "allreduce_of.hpp"
#include "horovod.h"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

static std::atomic<bool> counting{false};
static std::atomic<long> allocations{0};
static void note() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

extern "C" {
void* malloc(size_t size) {
  note();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  note();
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  note();
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  note();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr;
}
}

namespace {

constexpr int ops = 200;

void check(hvd_status status) {
  if (status == HVD_OK) return;
  std::fprintf(stderr, "%s\n", hvd_last_error());
  std::exit(1);
}

// How often the thread named hvd-engine has gone to sleep or been interrupted.
long engine_switches() {
  long switches = -1;
  DIR* threads = ::opendir("/proc/self/task");
  while (dirent* entry = ::readdir(threads)) {
    std::string folder = std::string("/proc/self/task/") + entry->d_name;
    std::ifstream name_file(folder + "/comm");
    std::string name;
    std::getline(name_file, name);
    if (name != "hvd-engine") continue;
    std::ifstream status(folder + "/status");
    std::string word;
    switches = 0;
    while (status >> word)
      if (word == "voluntary_ctxt_switches:" || word == "nonvoluntary_ctxt_switches:") {
        long number = 0;
        status >> number;
        switches += number;
      }
  }
  ::closedir(threads);
  return switches;
}

struct Program {
  hvd_runtime* runtime = nullptr;
  std::vector<hvd_op*> prepared;
  std::vector<std::vector<float>> tensors;
  std::vector<hvd_handle> handles;

  void prepare() {
    for (int i = 0; i < ops; ++i) {
      int64_t count = 16 + i;
      tensors.emplace_back(static_cast<size_t>(count), 1.0f);
      std::string name = "gradient." + std::to_string(i);
      hvd_op_description description = hvd::testing::allreduce_of(name.c_str(), count, HVD_FLOAT32, HVD_AVERAGE);
      hvd_op* op = nullptr;
      check(hvd_prepare(runtime, &description, &op));
      prepared.push_back(op);
    }
    handles.resize(ops);
  }
  void step() {
    for (size_t i = 0; i < ops; ++i) {
      hvd_start_arguments arguments = hvd_use_of(prepared[i], tensors[i].data(), tensors[i].data());
      check(hvd_start(runtime, &arguments, 1, &handles[i]));
    }
    for (hvd_handle handle : handles) {
      check(hvd_wait(runtime, handle, -1));
      hvd_release(runtime, handle);
    }
  }
};

}  // namespace

int main() {
  Program program;
  check(hvd_init(&program.runtime));
  program.prepare();
  // Batches differ with timing, and capacities grow until the largest batch fits. Therefore one window of 300 steps
  // without anything new is enough.
  for (int i = 0; i < 300; ++i) program.step();
  long long more_strings = 0, more_plans = 0;
  for (int window = 0; window < 10; ++window) {
    long long strings = hvd_counter(program.runtime, "requests_sent"), plans = hvd_counter(program.runtime, "plans");
    allocations = 0;
    counting = true;
    for (int i = 0; i < 300; ++i) program.step();
    counting = false;
    more_strings = hvd_counter(program.runtime, "requests_sent") - strings;
    more_plans = hvd_counter(program.runtime, "plans") - plans;
    if (allocations == 0 && more_strings == 0 && more_plans == 0) break;
  }

  // When the engine is idle, one window of 300 ms must pass without a context switch. In the first window it may still
  // fall asleep.
  long switches = 0;
  for (int window = 0; window < 10; ++window) {
    long before = engine_switches();
    ::usleep(300'000);
    switches = engine_switches() - before;
    if (switches == 0) break;
  }
  std::printf("allocations %ld requests %lld plans %lld idle switches %ld\n", allocations.load(), more_strings,
              more_plans, switches);
  hvd_shutdown(program.runtime);
  return allocations == 0 && more_strings == 0 && more_plans == 0 && switches == 0 ? 0 : 1;
}
