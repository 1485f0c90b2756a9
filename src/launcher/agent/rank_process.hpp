#pragma once
// One rank on this host: its process, and the pipes that its output comes through.
#include <sys/types.h>

#include "launcher/wire/messages.hpp"
#include "native/posix/affinity.hpp"
#include "native/posix/file_descriptor.hpp"
#include "native/posix/process.hpp"
#include "native/posix/signals.hpp"

namespace hvd::launcher {

struct RankProcess {
  Rank rank;
  bool is_site_launcher = false;
  pid_t process = 0;                // also its process group; 0 after it was reaped
  posix::FileDescriptor output[2];  // indexed by Stream; non-blocking; empty after the end of file
  posix::FileDescriptor input;      // what it reads, if that comes from horovodrun; non-blocking
  // Closes without a byte when the program has been executed; else a StartFailure comes through it.
  posix::FileDescriptor start_report;
};

// What horovodrun itself was started with. The ranks start with the same, though horovodrun and its agent change it
// for themselves.
struct Inheritance {
  posix::SignalState signals;
  posix::DescriptorLimit descriptors;
};

// What comes out of start_report when the program could not be started.
struct StartFailure {
  int error = 0;
  enum Step : int { folder, cpus, execute } step = execute;
  static const char* describe(Step step);
};

// Forks, and returns before the program is executed; start_report tells whether it was. `cpus` are the processors of
// the rank; empty: all that the agent may use. If the rank gets the agent's standard input, this process has none
// afterwards. The caller has a single thread.
Result<RankProcess> start_rank(const StartRank& order, const posix::CpuMask& cpus, const Inheritance& inheritance);

}  // namespace hvd::launcher
