#pragma once
// Stands between a site's launcher and a rank of it: tells horovodrun how the rank ended, ends what the rank leaves behind.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// The first argument of the program; the second is the grace in milliseconds, then comes the command.
inline constexpr const char* rank_keeper_flag = "--as-keeper-of-a-rank";

// The command of a rank below a keeper, on hosts where `horovodrun` is this program.
std::vector<std::string> below_a_keeper(const std::string& horovodrun, std::chrono::milliseconds grace,
                                        const std::vector<std::string>& command);

// Returns the exit code when nothing is left of the rank; if a signal ended the rank, it ends this process, too.
int run_rank_keeper(std::chrono::milliseconds grace, char** command);

// The keeper's line in the rank's standard error, which horovodrun takes out.
struct RankReport {
  int process = 0;
  int wait_status = 0;
  bool was_asked = false;  // it had been told to end before
  std::int64_t at_ns = 0;  // by the host's clock
  std::string host;
};
inline constexpr std::string_view report_beginning = "[horovodrun: a rank ended]";
std::string text_of(const RankReport& report);  // with an end of line
// Nothing if `text` does not begin with such a line.
std::optional<RankReport> report_in(std::string_view text);

}  // namespace hvd::launcher
