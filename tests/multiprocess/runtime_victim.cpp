// A rank that comes to harm: runtime_victim PHASE KIND VICTIM. In that phase the victim harms itself. The others go
// on like any program: when they get an error, they print it and exit with code 3.
//   PHASE  start: before hvd_init · fence: in hvd_init, while the victim waits for a rank that comes only when
//          $TMPDIR/go is written to; SIGUSR1 starts the harm · agreement: others wait for an op that the victim never
//          submits · inside: a collective of many megabytes is under way · between: no op is in flight anywhere ·
//          shutdown: others are in hvd_shutdown
//          In the last two phases with KIND stop, the others' work can be finished when the victim is continued.
//   KIND   kill: SIGKILL · exit0, exit7: _exit without hvd_shutdown · leave7: hvd_shutdown, then exit(7), not before
//          the job runs · abort: SIGABRT · stop: SIGSTOP
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "horovod.h"
#include "libpmix_leaks.hpp"
#include "sanitized.hpp"

namespace {

constexpr std::size_t large_count = hvd::testing::is_sanitized ? 2 << 20 : 16 << 20;

void come_to_harm(const std::string& kind, hvd_runtime* runtime = nullptr) {
  if (kind == "leave7") {
    hvd_shutdown(runtime);
    std::exit(7);
  }
  if (kind == "kill") ::raise(SIGKILL);
  if (kind == "exit0") ::_exit(0);
  if (kind == "exit7") ::_exit(7);
  if (kind == "abort") {
    ::signal(SIGABRT, SIG_DFL);
    ::raise(SIGABRT);
  }
  if (kind == "stop") ::raise(SIGSTOP);
}

std::string harm_of_signal;

void harm_me_by_signal(const std::string& kind) {
  harm_of_signal = kind;
  ::signal(SIGUSR1, [](int) { come_to_harm(harm_of_signal); });
  std::printf("victim %d\n", static_cast<int>(::getpid()));
  std::fflush(stdout);
}

void wait_until_stopped(int process) {
  std::string path = "/proc/" + std::to_string(process) + "/stat", text;
  do {
    ::usleep(1000);
    std::ifstream(path) >> text >> text >> text;  // the line has the form "pid (name) state …"
  } while (text != "T");
}

void wait_to_be_told() {
  std::string path = std::string(std::getenv("TMPDIR")) + "/go";
  ::mkfifo(path.c_str(), 0600);
  std::puts("late");
  std::fflush(stdout);
  int told = ::open(path.c_str(), O_RDONLY);
  if (told >= 0) ::close(told);
}

void leave_on(hvd_status status) {
  if (status == HVD_OK) return;
  std::fprintf(stderr, "%s\n", hvd_last_error());
  std::fflush(stderr);
  ::_exit(3);
}

hvd_op* prepare(hvd_runtime* runtime, const char* name, int64_t count) {
  hvd_op_description description{};
  description.struct_size = sizeof description;
  description.name = name;
  description.verb = count > 0 ? HVD_ALLREDUCE : HVD_BARRIER;
  description.dtype = HVD_FLOAT32;
  description.reduce_op = HVD_SUM;
  description.dimensions = count > 0 ? 1 : 0;
  description.shape = &count;
  description.prescale = description.postscale = 1.0;
  hvd_op* op = nullptr;
  leave_on(hvd_prepare(runtime, &description, &op));
  return op;
}

hvd_handle start(hvd_runtime* runtime, hvd_op* op, std::vector<float>& data) {
  hvd_start_arguments arguments = hvd_use_of(op, data.data(), data.data());
  hvd_handle handle = 0;
  leave_on(hvd_start(runtime, &arguments, 1, &handle));
  return handle;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  std::string phase = words[1], kind = words[2];
  const char* rank_text = nullptr;
  for (const char* name : {"HOROVOD_RANK", "SLURM_PROCID", "PMI_RANK", "PMIX_RANK"})
    if (rank_text == nullptr) rank_text = std::getenv(name);
  int rank = rank_text == nullptr ? 0 : std::atoi(rank_text);
  bool victim = rank == std::atoi(words[3]);

  if (victim && phase == "start") come_to_harm(kind);
  if (victim && phase == "fence") harm_me_by_signal(kind);
  if (phase == "fence" && rank == (std::atoi(words[3]) + 1) % std::atoi(std::getenv("HOROVOD_SIZE"))) wait_to_be_told();
  hvd_runtime* runtime = nullptr;
  leave_on(hvd_init(&runtime));
  std::vector<float> small(100, 1.0f), large(phase == "inside" ? large_count : 1, 1.0f);
  hvd_op* together = prepare(runtime, "together", 100);
  leave_on(hvd_wait(runtime, start(runtime, together, small), -1));

  if (phase == "agreement") {
    if (victim) come_to_harm(kind, runtime);
    leave_on(hvd_wait(runtime, start(runtime, prepare(runtime, "not by the victim", 100), small), -1));
  } else if (phase == "inside") {
    // Starts several in a row, so that one of them is under way when the harm happens.
    hvd_op* op = prepare(runtime, "large", static_cast<int64_t>(large.size()));
    leave_on(hvd_wait(runtime, start(runtime, op, large), -1));
    hvd_handle handle = start(runtime, op, large);
    if (victim) come_to_harm(kind, runtime);
    leave_on(hvd_wait(runtime, handle, -1));
    for (;;) leave_on(hvd_wait(runtime, start(runtime, op, large), -1));
  } else if (phase == "between") {
    leave_on(hvd_wait(runtime, start(runtime, prepare(runtime, "barrier", 0), small), -1));
    if (victim) come_to_harm(kind, runtime);
    if (kind == "stop") {
      leave_on(hvd_wait(runtime, start(runtime, together, small), -1));
      hvd_shutdown(runtime);
      return 0;
    }
    while (hvd_is_running(runtime))
      ::usleep(1000);  // stands for a program that computes, and asks from time to time
                       // whether the job still runs
    leave_on(hvd_wait(runtime, start(runtime, together, small), -1));
  } else if (phase == "shutdown") {
    if (kind == "stop") {
      std::fill(small.begin(), small.end(), victim ? static_cast<float>(::getpid()) : 0.0f);
      leave_on(hvd_wait(runtime, start(runtime, together, small), -1));
    }
    if (victim) come_to_harm(kind, runtime);
    else if (kind == "stop") wait_until_stopped(static_cast<int>(small[0]));
    hvd_shutdown(runtime);
    return 0;
  }
  hvd_shutdown(runtime);
  return 0;
}
