#include "runtime/stall.hpp"

#include <fstream>
#include <map>

namespace hvd::runtime {

namespace {

// The kernel's letter for what a process of this node is doing; ' ' where nothing can be said, 'X' if it is gone.
char state_of(const World& world, Rank rank) {
  if (world.member(rank).node != world.me().node) return ' ';
  std::ifstream status("/proc/" + std::to_string(world.member(rank).pid) + "/stat");
  std::string line;
  if (!std::getline(status, line)) return 'X';
  auto name_end = line.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= line.size() ? ' ' : line[name_end + 2];
}

// What explains why it does not answer.
const char* explain(char state) {
  switch (state) {
    case 'T':
    case 't': return ", process is stopped (SIGSTOP or a debugger)";
    case 'Z':
    case 'X': return ", process has ended";
    case 'D': return ", process waits for a disk or a device";
    default: return "";
  }
}

}  // namespace

void StallWatch::note(bool progress, bool waiting) {
  if (progress || waiting != waiting_) {
    quiet_since_ = Clock::now();
    next_report_ = quiet_since_ + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(config_.stall_check_time_s));
  }
  waiting_ = waiting;
}

std::chrono::nanoseconds StallWatch::until_due() const {
  if (!waiting_ || config_.stall_check_disable) return posix::WaitWord::forever;
  auto until = std::chrono::duration_cast<std::chrono::nanoseconds>(next_report_ - Clock::now());
  if (config_.stall_shutdown_time_s > 0) {
    auto end = quiet_since_ + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(config_.stall_shutdown_time_s));
    until = std::min(until, std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now()));
  }
  return std::max(until, std::chrono::nanoseconds(1'000'000));
}

bool StallWatch::report_due() {
  if (!waiting_ || config_.stall_check_disable || Clock::now() < next_report_) return false;
  next_report_ = Clock::now() +
                 std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(config_.stall_check_time_s));
  return true;
}

double StallWatch::waited_s() const {
  return std::chrono::duration<double>(Clock::now() - quiet_since_).count();
}

bool StallWatch::shutdown_due() const {
  return waiting_ && !config_.stall_check_disable && config_.stall_shutdown_time_s > 0 &&
         waited_s() >= config_.stall_shutdown_time_s;
}

bool is_halted(const World& world, Rank rank) {
  char state = state_of(world, rank);
  return state == 'T' || state == 't' || state == 'Z' || state == 'X';
}

std::string what_it_does(const World& world, Rank rank) {
  return explain(state_of(world, rank));
}

std::vector<Rank> halted_on_my_node(const World& world) {
  std::vector<Rank> halted;
  for (int rank = 0; rank < world.size(); ++rank)
    if (is_halted(world, Rank{rank})) halted.push_back(Rank{rank});
  return halted;
}

std::string stall_report(const World& world, const std::vector<StalledName>& stalled, double waited_s, bool final) {
  // The text travels as one record of the log.
  constexpr std::size_t most_names = 6, most_ranks = 50;
  std::map<Rank, std::vector<std::string>> names_of;
  for (const StalledName& it : stalled)
    for (Rank rank : it.missing) names_of[rank].push_back(it.name);
  std::string text =
      "One or more operations have waited for " + std::to_string(static_cast<int>(waited_s)) +
      " s for ranks that did not submit or serve them. " +
      (final ? "The job is ended (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)."
             : "This is expected while a rank computes alone (an evaluation on rank 0, say); otherwise the "
               "ranks run different code or one of them hangs.") +
      "\nMissing ranks:";
  std::size_t told = 0;
  for (const auto& [rank, names] : names_of) {
    if (told++ == most_ranks) return text + "\nand " + std::to_string(names_of.size() - most_ranks) + " more";
    text += "\n" + std::to_string(rank.value) + (final ? "!" : "") + ": [";
    for (std::size_t i = 0; i < names.size() && i < most_names; ++i) text += (i ? ", " : "") + names[i];
    if (names.size() > most_names) text += " ...";
    const Member& member = world.member(rank);
    text += "] (host " + member.host + ", process " + std::to_string(member.pid) + what_it_does(world, rank) + ")";
  }
  return text;
}

}  // namespace hvd::runtime
