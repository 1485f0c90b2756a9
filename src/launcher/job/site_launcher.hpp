#pragma once
// Launchers of the site (srun, mpiexec) start the ranks themselves. horovodrun starts such a launcher on this machine
// as if it were a rank. It reads in the launcher's output which line belongs to which rank, and which rank failed.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "bootstrap/launch/launchers.hpp"
#include "launcher/console/output.hpp"
#include "launcher/job/first_failure.hpp"
#include "launcher/job/site_dialect.hpp"
#include "launcher/job/way_to_meet.hpp"
#include "launcher/wire/keeper_protocol.hpp"

namespace hvd::launcher {

struct SiteLauncher {
  bootstrap::Launcher launcher{};
  const SiteDialect* dialect = nullptr;
  std::vector<std::string> command;  // the launcher's command; host_file_word in it stands for the path of the host
                                     // file
  std::string host_file;             // the content of the host file; empty: there is none
  bool packs_input = false;          // the input of rank 0 travels in packets (keeper_protocol.hpp)
  std::vector<std::string> unset;    // variables that the launcher must not see
  std::map<std::string, std::string> set;
  WayToMeet way{};  // how the ranks meet, if the command decides it
};
inline constexpr const char* host_file_word = "{host file}";

// Makes the order to start the launcher. `make_folder` makes a folder for the host file, if there is one.
Result<StartRank> order_for_site(const SiteLauncher& site, Environment environment,
                                 const std::map<std::string, std::string>& variables,
                                 const std::function<Result<std::string>()>& make_folder);

// Separates the output of a launcher into lines of ranks and lines of its own.
class SiteOutput {
 public:
  SiteOutput(const SiteDialect& dialect, int ranks) : dialect_(dialect), ranks_(ranks) {
    for (auto& lines : of_ranks_) lines.resize(static_cast<std::size_t>(ranks));
  }
  // Gives the output of ranks to `print`, in pieces that may end anywhere, and the launcher's own lines to `say`.
  void add(const Output& output, const std::function<void(const Output&)>& print,
           const std::function<void(std::string_view)>& say);
  void finish(const std::function<void(const Output&)>& print, const std::function<void(std::string_view)>& say);
  // Returns the failure that the ranks' keepers report. If no keeper did, returns what the launcher's lines tell, which
  // may lack the rank, its host or how it failed. Returns nullopt if no failure was reported.
  std::optional<FirstFailure> failure() const;
  // True if the keepers have reported that some rank ended with again_code.
  bool want_another_run() const { return want_another_run_; }
  // True if the keepers have reported the ends of all ranks.
  bool have_all_ended() const { return ranks_ended_ >= ranks_; }
  // Returns what rank 0 has taken of its packed input since the last call.
  InputTaken input_taken() { return std::exchange(input_taken_, {}); }
  const std::string& last_line() const { return last_line_; }

 private:
  void take(Stream stream, std::string_view line, const std::function<void(const Output&)>& print,
            const std::function<void(std::string_view)>& say);

  void take_of_rank(Stream stream, Rank rank, std::string_view piece, const std::function<void(const Output&)>& print);
  void handle(Rank rank, const RankReport& report);

  const SiteDialect& dialect_;
  int ranks_;
  bool want_another_run_ = false;
  int ranks_ended_ = 0;
  InputTaken input_taken_;
  std::vector<FirstFailure> reported_;
  // The first rank whose keeper has reported that it ended with exit code 0, without being asked to: when, and who.
  std::optional<std::pair<std::int64_t, std::string>> left_first_;
  std::string unfinished_[2];             // the unfinished line of each stream
  std::vector<std::string> of_ranks_[2];  // what has come of each rank's unfinished line, by stream and rank
  FirstFailure reading_;
  std::optional<FirstFailure> failure_;
  std::string last_line_;
};

}  // namespace hvd::launcher
