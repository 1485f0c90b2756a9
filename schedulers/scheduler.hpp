#pragma once
// A batch system as a job of it sees it: which hosts the job has, how long it may run, how it is requeued. To add a
// batch system, add a file here. All answers come from the arguments, so a test can give it captured jobs.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"

namespace hvd::schedulers {

struct Host {
  std::string name;
  int slots = 0;  // ranks that the job asked for on this host
  int cores = 0;  // cores that the job has on this host; 0: unknown
  int gpus = -1;  // GPUs that the job has on this host; -1: unknown
  int part = 0;   // number of the job's part to which the host belongs (Slurm's heterogeneous jobs have several parts)
  int room() const { return slots > cores ? slots : cores; }  // the most ranks that do not share a core
};

struct Allocation {
  std::string job;                            // the name in the scheduler's commands: "17", "17_3", "17[3]"
  std::vector<Host> hosts;                    // hosts for ranks, each once, in the scheduler's order
  std::string source;                         // the source of the hosts: "LSB_MCPU_HOSTS"
  std::string launch_host;                    // runs the job's script, but no ranks; empty: there is no such host
  std::vector<std::string> contradictions{};  // "LSB_DJOB_NUMPROC=9, but LSB_MCPU_HOSTS has 8 slots"
};

// The sources from which a scheduler may read.
struct Sources {
  const Environment& environment;
  std::function<Result<std::string>(const std::string& path)> read_file;
  // Returns what a program prints. The program is found along PATH. Empty if it is not there or fails.
  std::function<std::string(const std::vector<std::string>& command)> ask;
  std::function<bool(const std::string& program)> has_program;
  std::int64_t now_s = 0;  // seconds since 1970
  // The scheduler itself must be asked. The values that the job got at its start may be out of date, for example after
  // a suspension.
  bool asks_anew = false;
  std::string host{};  // the name of this host
};

// How a job is requeued. Some schedulers need a command, others an exit code of the job.
struct Requeue {
  std::vector<std::string> command;  // command that requeues the job; empty: there is none
  int exit_code = 0;                 // 0: no exit code requeues the job
};

// Where a scheduler comes in the order in which they are looked for, if the variables of several are set.
enum class Place {
  inside_others,   // its job is often within a job of another scheduler, and then counts without a comparison
  before_equals,   // it wins a tie among equals: its user often is on a host that no job has (salloc)
  equal,           // the hosts tell whether it counts
  without_others,  // the machine itself, which counts if there is no scheduler
};

// What carries messages between horovodrun and an agent that a remote starter has started.
enum class Messages {
  by_command,      // its own standard input and output, as with ssh
  by_pbsdsh_line,  // these do not; a process of horovodrun does (launcher/agent/called_agent.hpp)
  by_srun_line,
};

// A command that starts a process on another host of the job.
struct RemoteStarter {
  std::vector<std::string> words;  // up to the host's name; empty if there is none, and then horovodrun takes ssh
  Messages messages;
};

// What is fixed of a scheduler. No member has a value of its own, so the compiler names each one that is left out.
struct Traits {
  const char* name;                        // for people: "Slurm"
  const char* job_variable;                // set inside each job; null if there is none
  std::vector<std::string_view> prefixes;  // with which all variables begin that are read here
  Place place;
  // Patterns of fnmatch for the files with the output of jobs, also of jobs with a script by horovodrun --jobscript:
  // one for each file that a job may have. None if only the user chooses the names.
  std::vector<const char*> output_files;
  RemoteStarter remote_starter;
};

class Scheduler {
 public:
  explicit Scheduler(Traits traits) : traits_(std::move(traits)) {}
  virtual ~Scheduler() = default;
  const Traits& traits() const { return traits_; }
  const char* name() const { return traits_.name; }
  // Returns what shows that this process is inside a job, such as "SLURM_JOB_ID=17"; nullopt if it is in no job.
  virtual std::optional<std::string> detected(const Environment& environment) const {
    auto job = environment.get(traits_.job_variable);
    if (!job || job->empty()) return std::nullopt;
    return std::string(traits_.job_variable) + "=" + *job;
  }
  // This and the others below may be called only inside a job. Returns the job's name in the scheduler's commands, the
  // same in each run of a job that is requeued.
  virtual std::string job(const Sources& sources) const {
    return sources.environment.get(traits_.job_variable).value_or("");
  }
  // An error names what could not be read.
  virtual Result<Allocation> allocation(const Sources& sources) const = 0;
  // Returns nullopt if the job has no limit, or if the scheduler does not tell it.
  virtual std::optional<std::chrono::seconds> time_left(const Sources& sources) const = 0;
  virtual Requeue requeue(const Sources& sources) const = 0;
  // Returns how often the job was requeued; nullopt if the scheduler does not count that.
  virtual std::optional<int> times_requeued(const Sources&) const { return std::nullopt; }
  // Returns what a user types to get a job with this number of slots.
  virtual std::string how_to_ask_for(int slots) const = 0;

 private:
  Traits traits_;
};

}  // namespace hvd::schedulers
