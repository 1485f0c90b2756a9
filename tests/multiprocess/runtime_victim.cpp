// A rank that comes to harm: runtime_victim PHASE KIND VICTIM. In the phase the victim does itself the harm of the
// kind; the others go on as a program would: they print an error and leave with code 3.
//   PHASE  start: before hvd_init · agreement: others wait for an op that the victim never submits · inside: a
//          collective of many megabytes is under way · between: no op is in flight anywhere · shutdown: others are in
//          hvd_shutdown
//   KIND   kill: SIGKILL · exit0, exit7: _exit without hvd_shutdown · abort: SIGABRT · stop: SIGSTOP
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "horovod.h"
#include "sanitized.hpp"

// Asked by the address sanitizer, if there is one: libpmix keeps what its initialisation allocates.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
__attribute__((visibility("default"))) const char* __lsan_default_suppressions();
__attribute__((visibility("default"))) const char* __lsan_default_options();
const char* __lsan_default_suppressions() {
  return "leak:libpmix.so";
}
const char* __lsan_default_options() {
  return "print_suppressions=0";
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace {

constexpr std::size_t large_count = hvd::testing::is_sanitized ? 2 << 20 : 16 << 20;

void come_to_harm(const std::string& kind) {
  if (kind == "kill") ::raise(SIGKILL);
  if (kind == "exit0") ::_exit(0);
  if (kind == "exit7") ::_exit(7);
  if (kind == "abort") {
    ::signal(SIGABRT, SIG_DFL);
    ::raise(SIGABRT);
  }
  if (kind == "stop") ::raise(SIGSTOP);
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
  hvd_start_arguments arguments{op, data.data(), data.data(), 0};
  hvd_handle handle = 0;
  leave_on(hvd_start(runtime, &arguments, 1, &handle));
  return handle;
}

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  std::string phase = words[1], kind = words[2];
  const char* rank_text = std::getenv("HOROVOD_RANK");
  bool victim = rank_text != nullptr && std::atoi(rank_text) == std::atoi(words[3]);

  if (victim && phase == "start") come_to_harm(kind);
  hvd_runtime* runtime = nullptr;
  leave_on(hvd_init(&runtime));
  std::vector<float> small(100, 1.0f), large(phase == "inside" ? large_count : 1, 1.0f);
  hvd_op* together = prepare(runtime, "together", 100);
  leave_on(hvd_wait(runtime, start(runtime, together, small), -1));

  if (phase == "agreement") {
    if (victim) come_to_harm(kind);
    leave_on(hvd_wait(runtime, start(runtime, prepare(runtime, "not by the victim", 100), small), -1));
  } else if (phase == "inside") {
    // Several in a row, so that one is under way whenever the victim falls.
    hvd_op* op = prepare(runtime, "large", static_cast<int64_t>(large.size()));
    leave_on(hvd_wait(runtime, start(runtime, op, large), -1));
    hvd_handle handle = start(runtime, op, large);
    if (victim) come_to_harm(kind);
    leave_on(hvd_wait(runtime, handle, -1));
    for (;;) leave_on(hvd_wait(runtime, start(runtime, op, large), -1));
  } else if (phase == "between") {
    leave_on(hvd_wait(runtime, start(runtime, prepare(runtime, "barrier", 0), small), -1));
    if (victim) come_to_harm(kind);
    while (hvd_is_running(runtime)) ::usleep(1000);  // a program that computes; it asks now and then
    leave_on(hvd_start(runtime, nullptr, 0, nullptr));
  } else if (phase == "shutdown") {
    if (victim) come_to_harm(kind);
    hvd_shutdown(runtime);
    return 0;
  }
  hvd_shutdown(runtime);
  return 0;
}
