#include "launcher/job/own_process.hpp"

#include <cstdint>
#include <string>

#include "launcher/agent/rank_environment.hpp"
#include "native/posix/processes/process.hpp"

namespace hvd::launcher {
namespace {

// The agent holds three pipes and a handle for each rank of this machine while that rank starts. We hold two
// connections for each of these ranks (PMIx, the store) and up to two files for each rank (--output-filename). For each
// other host we hold a stream, its complaints, a lifeline and the connection of its first rank to the store.
Status raise_descriptor_limit(const JobOptions& options) {
  constexpr std::uint64_t our_own = 32;
  std::uint64_t ranks = options.placements.size(), here = 0;
  for (const Placement& placement : options.placements) here += options.hosts[placement.host_index].reach.empty();
  std::uint64_t files = options.printer.folder.empty() ? 0 : 2 * (ranks - here);
  std::uint64_t needed = 4 * (here + options.hosts.size() - 1) + files + our_own;
  posix::DescriptorLimit limit = posix::descriptor_limit();
  if (limit.soft >= needed) return {};
  if (limit.hard < needed)
    return Error(ErrorCode::system, "-np " + std::to_string(ranks) + " needs " + std::to_string(needed) +
                                        " open files, but this machine allows " + std::to_string(limit.hard) +
                                        " (ulimit -Hn): " + (ranks > 1 ? "start fewer ranks, or " : "") +
                                        "have the limit raised");
  posix::set_descriptor_limit({needed, limit.hard});
  return {};
}

}  // namespace

Result<posix::SignalReader> prepare_own_process(const JobOptions& options) {
  HVD_RETURN_IF_ERROR(raise_descriptor_limit(options));
  auto signals =
      posix::SignalReader::open({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP, SIGCHLD});
  if (!signals) return signals;
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // without this signal, a write beyond the limit of a file's size fails with an error
  drop_traces_of_launchers();
  HVD_RETURN_IF_ERROR(posix::become_subreaper());
  return signals;
}

}  // namespace hvd::launcher
