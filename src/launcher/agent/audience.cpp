#include "launcher/agent/audience.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace hvd::launcher {
namespace {

// The names of threads of the runtime. They tell of a process in a container, too, which could not tell its number.
bool has_joined(pid_t process, Joined way) {
  return posix::has_thread(process, "hvd-stop") ||
         (way == Joined::is_member && posix::has_thread(process, "hvd-engine"));
}

}  // namespace

std::vector<posix::Descendant> joined_among(const std::vector<posix::Descendant>& all, Joined way) {
  std::vector<posix::Descendant> joined;
  std::ranges::copy_if(all, std::back_inserter(joined), [&](const auto& it) { return has_joined(it.process, way); });
  std::map<pid_t, pid_t> parents;
  for (const posix::Descendant& each : all) parents[each.process] = each.parent;
  auto is_below_another = [&](const posix::Descendant& it) {
    for (auto above = parents.find(it.parent); above != parents.end(); above = parents.find(above->second))
      if (std::ranges::any_of(joined, [&](const auto& other) { return other.process == above->first; })) return true;
    return false;
  };
  std::vector<posix::Descendant> first;
  std::ranges::remove_copy_if(joined, std::back_inserter(first), is_below_another);
  return first;
}

void signal_rank(pid_t process, pid_t group, int signal) {
  if (signal == SIGUSR1 || signal == SIGUSR2) {
    std::vector<posix::Descendant> all = posix::descendants_of(process);
    all.push_back({process, ::getpid(), group});
    const std::vector<posix::Descendant> audience = joined_among(all, Joined::is_member);
    for (const posix::Descendant& each : audience) posix::signal_descendant(each, signal);
    if (!audience.empty()) return;
  }
  ::kill(-group, signal);
}

std::optional<pid_t> rank_left_by(pid_t group, int wait_status) {
  const int signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
  if (signal != SIGUSR1 && signal != SIGUSR2 && signal != SIGTERM) return std::nullopt;
  std::vector<posix::Descendant> all = posix::descendants_of(::getpid());
  std::erase_if(all, [group](const posix::Descendant& it) { return it.group != group; });
  std::vector<posix::Descendant> ranks = joined_among(all, Joined::listens_for_stops);
  if (ranks.size() != 1) return std::nullopt;
  posix::Descendant at = ranks.front();
  while (at.parent != ::getpid()) {
    auto above = std::ranges::find(all, at.parent, &posix::Descendant::process);
    if (above == all.end()) return std::nullopt;
    at = *above;
  }
  return at.process;
}

}  // namespace hvd::launcher
