#include "runtime/agreement/stall.hpp"

#include <fstream>
#include <map>
#include <utility>

#include "base/error_ids.hpp"
#include "base/log.hpp"

namespace hvd::runtime {

namespace {

// Returns the kernel's letter for the state of a process on this node: ' ' if it is not known, 'X' if the process has
// ended.
char state_of(const World& world, Rank rank) {
  if (!world.can_see_process_of(rank)) return ' ';
  std::ifstream status("/proc/" + std::to_string(world.member(rank).pid) + "/stat");
  std::string line;
  if (!std::getline(status, line)) return std::ifstream("/proc/self/stat").good() ? 'X' : ' ';
  auto name_end = line.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= line.size() ? ' ' : line[name_end + 2];
}

// The time after which a job that was told to end is told again.
constexpr Clock::duration time_to_hear = std::chrono::seconds(1);

// If a look is late by more than this, and by more than half of the planned pause, this process was stopped meanwhile.
// A busy machine delays looks by less.
constexpr Clock::duration usual_delay = std::chrono::seconds(1);

// Returns the words for a state that explains why a process does not answer.
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

StallWatch::StallWatch(const Config& config) {
  if (config.stall_check_disable) return;
  auto whole = [](double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  check_ = whole(config.stall_check_time_s);
  shutdown_ = whole(config.stall_shutdown_time_s);
  Clock::duration shortest = check_.count() > 0 ? check_ : shutdown_;
  if (shutdown_.count() > 0) shortest = std::min(shortest, shutdown_);
  pause_ = shortest / 4;
}

std::chrono::nanoseconds StallWatch::until_due(Clock::time_point now) const {
  if (!next_look_) return posix::WaitWord::forever;
  return std::max<std::chrono::nanoseconds>(*next_look_ - now, std::chrono::milliseconds(1));
}

StallWatch::Verdict StallWatch::look(std::optional<Clock::time_point> since, Clock::time_point now) {
  if (next_look_ && now - *next_look_ > std::max(usual_delay, pause_ / 2)) continued_ = now;
  next_look_.reset();
  if (!since) return Verdict::fine;
  Clock::duration time = waited(*since, now);
  auto verdict = Verdict::fine;
  if (shutdown_.count() > 0 && time >= shutdown_) {
    verdict = Verdict::end;
  } else if (check_.count() > 0 && time >= check_ && (!reported_ || now - *reported_ >= check_)) {
    verdict = Verdict::report;
    reported_ = now;
  }
  plan_look(std::max(*since, continued_), now);
  return verdict;
}

void StallWatch::plan_look(Clock::time_point since, Clock::time_point now) {
  auto look_at = [this](Clock::time_point time) { next_look_ = next_look_ ? std::min(*next_look_, time) : time; };
  if (pause_.count() == 0) return;
  if (shutdown_.count() > 0 && since + shutdown_ <= now) return look_at(now + time_to_hear);
  if (check_.count() > 0) look_at(std::max(since, reported_.value_or(since)) + check_);
  if (shutdown_.count() > 0) look_at(since + shutdown_);
  look_at(now + pause_);
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
  // Limits on the text, because it travels as one record of the log.
  constexpr std::size_t most_names = 6, most_ranks = 50;
  std::map<Rank, std::vector<std::string>> names_of;
  for (const StalledName& it : stalled)
    for (Rank rank : it.missing) names_of[rank].push_back(it.name);
  std::string text =
      "One or more operations have waited for " + std::to_string(static_cast<int>(waited_s)) +
      " s for ranks that did not submit or serve them. " +
      (final ? "The job is ended (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)."
             : "This is expected while a rank computes alone (an evaluation on rank 0, say); otherwise the "
               "ranks run different code or one of them hangs.");
  text += "\nMissing ranks:";
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

std::string stall_report(const World& world, const StallOnDevice& stall, const std::vector<Rank>& halted) {
  const bool has_halted = !stall.is_held_up_by_program && !halted.empty();
  std::string text = "The batch of '" + stall.name + "' was issued on " + stall.device + " of " +
                     describe(world, stall.by) + " " + std::to_string(static_cast<int>(stall.waited_s)) +
                     " s ago and has not ended there. ";
  if (stall.is_held_up_by_program) {
    text +=
        "The program's own work on that device, after which the operation was started, has not ended; the other "
        "ranks wait for it. ";
  } else if (!has_halted) {
    text +=
        "No rank's own work holds it up, as far as is known: a device or a link between devices hangs, or a "
        "process that cannot tell. ";
  }
  if (stall.final) text += "The job is ended (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS). ";
  text.pop_back();  // the blank
  const std::vector<Rank> by{stall.by};
  const char* heading = "\nMissing ranks:";
  for (Rank rank : stall.is_held_up_by_program ? by : halted) {
    const Member& member = world.member(rank);
    text += std::exchange(heading, "");
    text += "\n" + std::to_string(rank.value) + (stall.final ? "!" : "") + ": [" + stall.name + "] (host " +
            member.host + ", process " + std::to_string(member.pid) + what_it_does(world, rank) + ")";
  }
  return text;
}

void print_stall(const std::string& report, bool final) {
  const std::string text = with_id(report, missing_ranks_id);
  final ? log::error(text) : log::warning(text);
}

Error end_by_stall(const std::string& report) {
  return identified({ErrorCode::shut_down, "Horovod has been shut down: " + report}, missing_ranks_id);
}

std::string report_missing_acks(const World& world, const std::vector<bool>& has_acked, double waited_s) {
  constexpr std::size_t most_ranks = 50;
  std::string text = "All ranks were to stop " + std::to_string(static_cast<int>(waited_s)) +
                     " s ago, but hvd.should_stop() (hvd_should_stop) has not returned true on these. Each rank has to "
                     "call it after every step, from the thread that waits for the step's operations:";
  std::size_t missing = 0;
  for (std::size_t at = 0; at < has_acked.size(); ++at) {
    if (has_acked[at] || ++missing > most_ranks) continue;
    Rank rank{static_cast<std::int32_t>(at)};
    text += "\n" + describe(world, rank) + what_it_does(world, rank);
  }
  return missing > most_ranks ? text + "\nand " + std::to_string(missing - most_ranks) + " more" : text;
}

}  // namespace hvd::runtime
