// What NCCL does: launches with and without blocking, an abort of a kernel that hangs, ranks that share a GPU.
#if __has_include(<nccl.h>)
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <thread>
#include <vector>

#include "driver.hpp"
#include "questions.hpp"

namespace probe {

namespace {

// clang-format off
#define PROBE_NCCL(X) \
  X(ncclGetVersion) X(ncclGetUniqueId) X(ncclCommInitRankConfig) X(ncclCommGetAsyncError) X(ncclCommAbort) \
  X(ncclAllReduce) X(ncclGetErrorString)
// clang-format on

struct Nccl {
#define PROBE_MEMBER(name) decltype(&::name) name = nullptr;
  PROBE_NCCL(PROBE_MEMBER)
#undef PROBE_MEMBER
  // PROBE_NCCL_LIBRARY names the file, or the process's loader finds it.
  void load() {
    const char* file = std::getenv("PROBE_NCCL_LIBRARY");
    void* library = ::dlopen(file != nullptr ? file : "libnccl.so.2", RTLD_NOW);
    if (library == nullptr) skip("nccl", "no_library");
#define PROBE_FIND(name)                                        \
  if (void* found = ::dlsym(library, #name); found != nullptr)  \
    this->name = reinterpret_cast<decltype(this->name)>(found); \
  else skip("nccl", "no_" #name);
    PROBE_NCCL(PROBE_FIND)
#undef PROBE_FIND
  }
};
Nccl& nccl() {
  static Nccl it;
  return it;
}

std::string text(ncclResult_t result) {
  std::string words = nccl().ncclGetErrorString(result);
  for (char& letter : words)
    if (letter == ' ') letter = '_';
  return words;
}

struct Rank {
  Gpu gpu;
  ncclComm_t comm = nullptr;
  CUdeviceptr data = 0;
  explicit Rank(int ordinal) : gpu(ordinal) { need(driver().cuMemAlloc(&data, 1 << 20), "nccl.memory"); }
  ncclResult_t connect(const ncclUniqueId& id, int ranks, int me, bool blocks) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocks ? 1 : 0;
    return settle(nccl().ncclCommInitRankConfig(&comm, ranks, id, me, &config));
  }
  ncclResult_t reduce() {
    auto* memory = reinterpret_cast<void*>(data);
    return nccl().ncclAllReduce(memory, memory, 1024, ncclFloat, ncclSum, comm,
                                reinterpret_cast<cudaStream_t>(gpu.stream));
  }
  // Until a call is no longer in progress.
  ncclResult_t settle(ncclResult_t result) {
    while (result == ncclInProgress)
      if (nccl().ncclCommGetAsyncError(comm, &result) != ncclSuccess) break;
    return result;
  }
};

// Host times of launches, with all GPUs that there are: a thread for each rank.
void ask_launches_of_nccl(const std::string& name, bool blocks) {
  nccl().load();
  int version = 0;
  nccl().ncclGetVersion(&version);
  say(name + ".version", version, "number");
  const int ranks = driver().device_count();
  say(name + ".ranks", ranks, "ranks");
  ncclUniqueId id{};
  nccl().ncclGetUniqueId(&id);
  std::vector<std::thread> threads;
  for (int me = 0; me < ranks; ++me)
    threads.emplace_back([&, me] {
      Rank rank(me);
      auto begin = Clock::now();
      const ncclResult_t made = rank.connect(id, ranks, me, blocks);
      if (me == 0) say(name + ".connect", microseconds_since(begin) / 1000, "ms");
      if (made != ncclSuccess) return say(name + ".connect.result", text(made), "result");
      begin = Clock::now();
      ncclResult_t first = rank.reduce();
      const double call = microseconds_since(begin);
      const bool was_in_progress = first == ncclInProgress;
      first = rank.settle(first);
      if (me == 0) {
        say(name + ".first.call", call, "us");
        say(name + ".first.launched", microseconds_since(begin), "us");
        say(name + ".first.in_progress", was_in_progress ? 1 : 0, "yes_or_no");
      }
      driver().cuStreamSynchronize(rank.gpu.stream);
      double calls = 0, launched = 0;
      int in_progress = 0;
      constexpr int times = 200;
      for (int i = 0; i < times; ++i) {
        begin = Clock::now();
        const ncclResult_t result = rank.reduce();
        calls += microseconds_since(begin);
        in_progress += result == ncclInProgress;
        rank.settle(result);
        launched += microseconds_since(begin);
        if (i % 20 == 19) driver().cuStreamSynchronize(rank.gpu.stream);
      }
      if (me != 0) return;
      say(name + ".call", calls / times, "us");
      say(name + ".launched", launched / times, "us");
      say(name + ".in_progress", in_progress, "of_200");
    });
  for (auto& thread : threads) thread.join();
}

// Reduces with a rank that never does: the kernel hangs. Does abort return, does the event come, in what time?
void watch_an_abort(Rank& rank, const std::string& name) {
  rank.settle(rank.reduce());
  CUevent end = rank.gpu.event();
  driver().cuEventRecord(end, rank.gpu.stream);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  say(name + ".before", driver().text(driver().cuEventQuery(end)), "result");
  const auto begin = Clock::now();
  say(name, text(nccl().ncclCommAbort(rank.comm)), "result");
  say(name + ".time", microseconds_since(begin) / 1000, "ms");
  say(name + ".event", driver().text(driver().cuEventSynchronize(end)), "result");
  say(name + ".event.time", microseconds_since(begin) / 1000, "ms");
}

}  // namespace

void ask_nccl_blocking() {
  ask_launches_of_nccl("nccl.blocking", true);
}
void ask_nccl_nonblocking() {
  ask_launches_of_nccl("nccl.nonblocking", false);
}

// Rank 0 reduces and rank 1 never does.
void ask_nccl_abort() {
  nccl().load();
  if (driver().device_count() < 2) skip("nccl.abort", "one_gpu");
  ncclUniqueId id{};
  nccl().ncclGetUniqueId(&id);
  std::thread other([&] {
    Rank rank(1);
    rank.connect(id, 2, 1, false);
    std::this_thread::sleep_for(std::chrono::seconds(10));
    nccl().ncclCommAbort(rank.comm);
  });
  Rank rank(0);
  if (const ncclResult_t made = rank.connect(id, 2, 0, false); made != ncclSuccess)
    say("nccl.abort.connect", text(made), "result");
  watch_an_abort(rank, "nccl.abort");
  other.join();
}

namespace {

// Two processes from here on, before any call of the driver. Returns which of them this is.
int fork_a_pair(const std::string& name, bool as_hosts, ncclUniqueId& id) {
  int id_pipe[2];
  if (::pipe(id_pipe) != 0) skip(name, "no_pipe");
  const int me = ::fork() == 0 ? 1 : 0;
  if (as_hosts) {
    ::setenv("NCCL_HOSTID", me == 0 ? "probe0" : "probe1", 1);
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    ::setenv("NCCL_IB_DISABLE", "1", 1);
  }
  if (!driver().load().empty()) skip(name, "no_driver");
  nccl().load();
  if (me == 0) nccl().ncclGetUniqueId(&id);
  const auto moved = me == 0 ? ::write(id_pipe[1], &id, sizeof id) : ::read(id_pipe[0], &id, sizeof id);
  if (moved != static_cast<ssize_t>(sizeof id)) skip(name, "no_id");
  return me;
}

}  // namespace

// Two ranks on one GPU, in two processes: NCCL refuses them, but after how long and in which words?
void ask_nccl_shared() {
  ncclUniqueId id{};
  const int me = fork_a_pair("nccl.shared", false, id);
  Rank rank(0);
  const auto begin = Clock::now();
  const ncclResult_t made = rank.connect(id, 2, me, false);
  if (me == 1) ::_exit(0);
  say("nccl.shared.connect", text(made), "result");
  say("nccl.shared.connect.time", microseconds_since(begin) / 1000, "ms");
  ::wait(nullptr);
}

// Told that they are on two hosts, may they share it?
void ask_nccl_faked_hosts() {
  ncclUniqueId id{};
  const int me = fork_a_pair("nccl.faked_hosts", true, id);
  Rank rank(0);
  auto begin = Clock::now();
  const ncclResult_t made = rank.connect(id, 2, me, false);
  const double connected = microseconds_since(begin) / 1000;
  constexpr int times = 50;
  begin = Clock::now();
  if (made == ncclSuccess)
    for (int i = 0; i < times; ++i) {
      rank.settle(rank.reduce());
      driver().cuStreamSynchronize(rank.gpu.stream);
    }
  if (me == 1) ::_exit(0);
  say("nccl.faked_hosts.connect", text(made), "result");
  say("nccl.faked_hosts.connect.time", connected, "ms");
  if (made == ncclSuccess) say("nccl.faked_hosts.allreduce", microseconds_since(begin) / times, "us");
  ::wait(nullptr);
}

// As nccl_abort, where there is one GPU.
void ask_nccl_abort_faked_hosts() {
  ncclUniqueId id{};
  const int me = fork_a_pair("nccl.abort_faked_hosts", true, id);
  Rank rank(0);
  const ncclResult_t made = rank.connect(id, 2, me, false);
  // The first call connects the ranks, and is in progress until both make it.
  if (made == ncclSuccess) rank.settle(rank.reduce());
  driver().cuStreamSynchronize(rank.gpu.stream);
  if (me == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(12));
    ::_exit(0);
  }
  say("nccl.abort_faked_hosts.connect", text(made), "result");
  if (made == ncclSuccess) watch_an_abort(rank, "nccl.abort_faked_hosts");
  std::_Exit(0);
}

}  // namespace probe

#else  // the header comes from the package nvidia-nccl-cu13
#include "driver.hpp"
#include "questions.hpp"

namespace probe {

void ask_nccl_blocking() {
  skip("nccl.blocking", "built_without_nccl.h");
}
void ask_nccl_nonblocking() {
  skip("nccl.nonblocking", "built_without_nccl.h");
}
void ask_nccl_abort() {
  skip("nccl.abort", "built_without_nccl.h");
}
void ask_nccl_shared() {
  skip("nccl.shared", "built_without_nccl.h");
}
void ask_nccl_faked_hosts() {
  skip("nccl.faked_hosts", "built_without_nccl.h");
}
void ask_nccl_abort_faked_hosts() {
  skip("nccl.abort_faked_hosts", "built_without_nccl.h");
}

}  // namespace probe
#endif
