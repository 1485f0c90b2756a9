#include "launcher/own_process.hpp"

#include <cstdint>
#include <string>

#include "launcher/rank_environment.hpp"
#include "native/posix/process.hpp"

namespace hvd::launcher {
namespace {

// Of each rank the agent has three pipes and a handle open while it starts; of each we have two connections (PMIx, the store) and
// up to two files (--output-filename); of each other host a stream, complaints and a lifeline.
Status raise_descriptor_limit(std::size_t ranks, std::size_t hosts) {
  constexpr std::uint64_t our_own = 32;
  std::uint64_t needed = 4 * (ranks + hosts - 1) + our_own;
  posix::DescriptorLimit limit = posix::descriptor_limit();
  if (limit.soft >= needed) return {};
  if (limit.hard < needed)
    return Error(ErrorCode::system, "-np " + std::to_string(ranks) + " needs " + std::to_string(needed) +
                                        " open files, but this machine allows " + std::to_string(limit.hard) +
                                        " (ulimit -Hn): start fewer ranks, or have the limit raised");
  posix::set_descriptor_limit({needed, limit.hard});
  return {};
}

}  // namespace

Result<posix::SignalReader> prepare_own_process(std::size_t ranks, std::size_t hosts) {
  HVD_RETURN_IF_ERROR(raise_descriptor_limit(ranks, hosts));
  auto signals =
      posix::SignalReader::open({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGCHLD});
  if (!signals) return signals;
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is told by the write
  drop_traces_of_launchers();
  HVD_RETURN_IF_ERROR(posix::become_subreaper());
  return signals;
}

}  // namespace hvd::launcher
