#pragma once
// A batch system, as a job of it sees it: which hosts it has, how long it may run, how it is put back into the queue.
// To add one, add a file here. All answers come from what is handed in, so that a test hands in captured jobs.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/result.hpp"

namespace hvd::schedulers {

struct Host {
  std::string name;
  int slots = 0;  // ranks that the job was asked for with, here
  int cores = 0;  // of the job, here; 0: it is not told
  int gpus = -1;  // likewise; -1: it is not told
  int part = 0;   // of a job that was asked for in several parts (Slurm's heterogeneous jobs)
  int room() const { return slots > cores ? slots : cores; }  // the most ranks that do not share a core
};

struct Allocation {
  std::string job;          // as the scheduler's own commands name it: "17", "17_3", "17[3]"
  std::vector<Host> hosts;  // that ranks may run on, each once, in the scheduler's order
  std::string source;       // where the hosts were read: "LSB_MCPU_HOSTS"
  std::string launch_host;  // runs the job's script, but no ranks; empty: there is no such host
};

// What a scheduler may look at.
struct Sources {
  const Environment& environment;
  std::function<Result<std::string>(const std::string& path)> read_file;
  // What the program says, found along PATH; empty if it is not there or fails.
  std::function<std::string(const std::vector<std::string>& command)> ask;
  std::function<bool(const std::string& program)> has_program;
  std::int64_t now_s = 0;  // seconds since 1970
  // What the job was told at its start may not be true any more, as after a suspension: the scheduler is to be asked.
  bool asks_anew = false;
};

// How a job gets another run. Some schedulers are told by a command, others by the exit code of the job.
struct Requeue {
  std::vector<std::string> command;  // empty: there is none
  int exit_code = 0;                 // 0: there is none
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual const char* name() const = 0;  // for people: "Slurm"
  // What shows that this process is inside of a job, "SLURM_JOB_ID=17". Nothing: it is in none.
  virtual std::optional<std::string> detected(const Environment& environment) const = 0;
  // Only inside of a job, as are the next three. An error names what could not be read.
  virtual Result<Allocation> allocation(const Sources& sources) const = 0;
  // Nothing: the job has no limit, or the scheduler does not tell.
  virtual std::optional<std::chrono::seconds> time_left(const Sources& sources) const = 0;
  virtual Requeue requeue(const Environment& environment) const = 0;
  // What a user types for a job with so many slots.
  virtual std::string how_to_ask_for(int slots) const = 0;
};

}  // namespace hvd::schedulers
