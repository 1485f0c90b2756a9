#pragma once
// A target makes the plan of a job from what the user asked for: who starts the ranks, and on which hosts. To add a
// target, add a file here and a row in target.cpp.
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "launcher/job/job_options.hpp"
#include "launcher/job/way_to_meet.hpp"
#include "launcher/options/flags.hpp"
#include "launcher/options/hosts.hpp"
#include "launcher/targets/job_around.hpp"

namespace hvd::launcher {

struct JobRequest {
  const Flags& flags;
  const Environment& environment;
  int ranks = 1;
  std::vector<std::string> command;
  std::vector<HostSlots> hosts;  // the hosts that the user named; empty: none
  std::chrono::milliseconds grace{5000};
  JobAround around = JobAround(environment);
};
// The environment that the ranks get: the flags stand for variables.
Environment with_flags(const JobRequest& request);

// The flags that concern some targets alone (Use::some_targets) and that this target reads.
struct OwnFlags {
  std::string_view names;  // "mpi_args binding_args"
  const char* where;       // for people, where this target starts the ranks: "with --mpi"
};

struct Target {
  const char* name;
  // Returns the reason why this target is to be used; nullopt if it is not to be used.
  std::optional<std::string> (*applies)(const JobRequest& request);
  // Returns the plan: the hosts, placements and network, or the site's launcher.
  Result<JobOptions> (*plan)(const JobRequest& request);
  // Returns the way in which the ranks of this plan find each other. May open libpmix.
  WayToMeet (*way)(const JobOptions& plan, const Environment& environment);
  OwnFlags own_flags{"", ""};
};

struct ChosenTarget {
  const Target* target;
  std::string why;
};
// Returns the first target that applies. Fails if the user asks for a target that cannot be used here.
Result<ChosenTarget> choose_target(const JobRequest& request);

// Returns notices about flags that this target does not use.
std::vector<std::string> unused_flags(const Target& target, const Flags& flags);

extern const Target mpi_target;     // --mpi: the mpiexec that is installed
extern const Target slurm_target;   // srun, inside an allocation of Slurm
extern const Target jsrun_target;   // jsrun, inside a job of LSF with JSM
extern const Target pals_target;    // the mpiexec of PALS, inside a job of PBS
extern const Target flux_target;    // flux run, inside an instance of Flux
extern const Target agents_target;  // our own agents on this machine, and on others over ssh

// Returns the words of HOROVOD_SSH (or of the variable that stands for it), up to the options for port and key. Empty:
// ssh itself is used.
std::vector<std::string> ssh_stand_in(const Environment& environment);
// True if the PMIx plugin is there and its library opens. If not, `why_not` gets the reason.
bool can_use_pmix(const Environment& environment, std::string* why_not = nullptr);
// If horovodrun gets only this argument, it prints whether PMIx can be used on its host, and if not, why. The user's
// horovodrun runs this on other hosts.
inline constexpr const char* pmix_question_flag = "--can-pmix-be-used";
inline constexpr const char* pmix_answer = "pmix can be used";
// True if this process may start ranks on all of the job's hosts. False if this process was started together with
// others, if the user asks for our own agents, or if all hosts that the user names are this machine.
bool is_for_the_whole_job(const JobRequest& request);
// Returns the hosts of the job that get ranks: the hosts that the user named, or all. Each has as many slots as it gets
// ranks.
Result<std::vector<HostSlots>> hosts_with_ranks(const JobRequest& request);
// Makes a plan for a launcher of the site. The launcher runs on this machine.
JobOptions plan_of_site(SiteLauncher site);
// The same for a launcher that starts a keeper for each rank. The keeper packs input and labels lines; its words
// follow those of `site`.
Result<JobOptions> plan_with_keepers(const JobRequest& request, SiteLauncher site);
// Returns the path of horovodrun on other hosts: HOROVOD_REMOTE_PROGRAM, or its path here.
Result<std::string> program_on_other_hosts(const Environment& environment);
// Returns a text like "n1,n1,n2", with one name for each rank.
std::string host_of_each_rank(const std::vector<Placement>& placements);

}  // namespace hvd::launcher
