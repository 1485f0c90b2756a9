#pragma once
// A target makes the plan of a job out of what the user asked for: who starts the ranks, and where. To add one, add a
// file here and a row in target.cpp.
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/result.hpp"
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
  std::vector<HostSlots> hosts;  // empty: none were named
  std::chrono::milliseconds grace{5000};
  JobAround around = JobAround(environment);
};

struct Target {
  const char* name;
  // Why this target is to be used; nothing if it is not.
  std::optional<std::string> (*applies)(const JobRequest& request);
  // The hosts, placements and network, or the site's launcher.
  Result<JobOptions> (*plan)(const JobRequest& request);
  // By which bootstrap the ranks of this plan find each other. May open libpmix.
  WayToMeet (*way)(const JobOptions& plan, const Environment& environment);
};

struct ChosenTarget {
  const Target* target;
  std::string why;
};
// The first target that applies. Fails if the user asks for one that cannot be had here.
Result<ChosenTarget> choose_target(const JobRequest& request);

extern const Target mpi_target;     // --mpi: the mpiexec that is there
extern const Target slurm_target;   // inside of an allocation of Slurm: srun
extern const Target jsrun_target;   // inside of a job of LSF with JSM: jsrun
extern const Target pals_target;    // inside of a job of PBS with PALS: its mpiexec
extern const Target flux_target;    // inside of an instance of Flux: flux run
extern const Target agents_target;  // this machine, and others over ssh, with agents of ours

// The words of HOROVOD_SSH (or of what stands for it), up to the options for port and key; empty: ssh itself.
std::vector<std::string> ssh_stand_in(const Environment& environment);
// Whether the PMIx plugin is there and its library opens. If not, `why_not` gets the reason.
bool can_use_pmix(const Environment& environment, std::string* why_not = nullptr);
// horovodrun with this only argument, on another host, prints this answer, or why PMIx cannot be used there.
inline constexpr const char* pmix_question_flag = "--can-pmix-be-used";
inline constexpr const char* pmix_answer = "pmix can be used";
// Whether this process may start ranks on all of the job's hosts: nobody started it as one of several, and the user
// does not want agents of ours, on this machine alone or elsewhere.
bool is_for_the_whole_job(const JobRequest& request);
// The hosts of the job that get ranks, each with as many slots as it gets: those named, or all.
Result<std::vector<HostSlots>> hosts_with_ranks(const JobRequest& request);
// A plan for a launcher of the site, which runs on this machine.
JobOptions plan_of_site(SiteLauncher site);
// The path of horovodrun on other hosts: HOROVOD_REMOTE_PROGRAM, or its path here.
Result<std::string> program_on_other_hosts(const Environment& environment);
// "n1,n1,n2", one name for each rank
std::string host_of_each_rank(const std::vector<Placement>& placements);

}  // namespace hvd::launcher
