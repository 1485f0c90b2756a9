#pragma once
// One rank on this host: its process, and the pipes that carry its output.
#include <sys/types.h>

#include "launcher/wire/messages.hpp"
#include "native/posix/files/file_descriptor.hpp"
#include "native/posix/machine/affinity.hpp"
#include "native/posix/processes/process.hpp"
#include "native/posix/processes/signals.hpp"

namespace hvd::launcher {

struct RankProcess {
  Rank rank;
  bool is_site_launcher = false;
  pid_t process = 0;                // number of the rank's process; 0 after it was reaped
  pid_t group = 0;                  // its process group
  posix::FileDescriptor output[2];  // ends of the output pipes, indexed by Stream; non-blocking; empty after the end of
                                    // file
  posix::FileDescriptor input;      // the rank's input, if it comes from horovodrun; non-blocking
  // A pipe that tells whether the program was executed. It ends without a byte if it was; otherwise it delivers a
  // StartFailure.
  posix::FileDescriptor start_report;
};

// What horovodrun itself was started with. horovodrun and its agent change these settings for themselves, but the ranks
// start with the original ones.
struct Inheritance {
  posix::SignalState signals;
  posix::DescriptorLimit descriptors;
};

// What start_report delivers if the program could not be started.
struct StartFailure {
  int error = 0;
  enum Step : int { folder, cpus, execute } step = execute;
  static const char* describe(Step step);
};

// Forks, and returns before the program is executed; start_report tells whether it was executed. `cpus` are the
// processors of the rank; if empty, the rank may use all that the agent may use. If the rank gets the agent's standard
// input, this process has none afterwards. The caller has a single thread.
Result<RankProcess> start_rank(const StartRank& order, const posix::CpuMask& cpus, const Inheritance& inheritance);

}  // namespace hvd::launcher
