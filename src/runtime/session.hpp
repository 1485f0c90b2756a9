#pragma once
// This process's membership in the job that it was launched into. It finds the bootstrap, meets the other ranks and
// starts a Runtime, as often as the program likes. It lives until the process ends, because launchers do not allow a
// process to leave and join again. In an elastic job, each start asks for this process's rank anew.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/settings/environment.hpp"
#include "base/settings/settings_file.hpp"
#include "bootstrap/mpi/over_communicator.hpp"
#include "bootstrap/selection/selection.hpp"
#include "runtime/runtime.hpp"

namespace hvd::runtime {

// Process sets that exist from the start. A set that is listed twice counts once, and a set of all ranks is the global
// one.
struct StaticSets {
  std::vector<std::vector<Rank>> listed;  // equal on all ranks
  // The MPI_Comms that contain this process. Other processes pass theirs.
  std::vector<const void*> communicators;
  std::size_t communicator_bytes = 0;
  std::vector<int> numbers_of_communicators;  // result: the numbers of these sets
};

class Session {
 public:
  // What the next start tells a launcher whose ranks come and go; other launchers are not told.
  void set_progress(const bootstrap::Progress& progress) { progress_ = progress; }
  // The place of the last start, where the ranks come and go; null otherwise.
  const bootstrap::Identity* assigned() const;
  // The news about hosts that the launcher has sent since the last start.
  std::vector<bootstrap::HostNews> take_news();

  // Collective over the job.
  Result<std::unique_ptr<Runtime>> start(const Environment& environment, StaticSets& sets);
  // Collective over the processes that `members` names. They belong to the job or to an MPI's world.
  Result<std::unique_ptr<Runtime>> start(const Environment& environment, const bootstrap::Members& members,
                                         StaticSets& sets);

 private:
  // The bootstrap by which the ranks meet, and the communicator of exactly these ranks, if there is one.
  struct Meeting {
    bootstrap::Bootstrap* bootstrap = nullptr;
    bootstrap::Identity identity;
    std::uint32_t epoch = 0;
    std::shared_ptr<mpi::Communicator> communicator;
    bool over_mpi = false;
    double called_at_s = 0;  // when this start was asked for, in seconds since 1970
  };
  struct Settings {
    Environment environment;  // completed by the files of the site and of the user
    Config config;
  };
  Result<Settings> configure(const Environment& given);
  Status join(const Environment& environment, const Config& config);
  Status join_again(const Environment& environment, const Config& config);
  Result<std::unique_ptr<Runtime>> start_once(const Settings& settings, StaticSets& sets, double called_at);
  Result<std::unique_ptr<Runtime>> start_with_all(const Environment& environment, const bootstrap::Members& members,
                                                  StaticSets& sets, const Error& why_no_mpi);
  Result<std::unique_ptr<Runtime>> meet(const Environment& environment, Config config, const Meeting& meeting,
                                        StaticSets& sets, Deadline deadline);

  std::vector<bootstrap::Notice> notices_;  // notices about the choice of the bootstrap
  std::optional<bootstrap::Chosen> chosen_;
  std::vector<std::string> unheard_;  // warnings about the configuration, which rank 0 reports
  bool warned_ = false;
  std::uint32_t epoch_ = 0;
  bootstrap::Progress progress_;
};

// Returns the value of every setting in this process, and its source. Fails if a file is faulty.
Result<std::vector<Setting>> settings_of_this_process();

}  // namespace hvd::runtime
