#pragma once
// The functions by which --preflight asks a rank for its GPU and its NCCL, and measures how fast NCCL moves bytes. They
// are in the plugin of NCCL, which has this symbol for them: a function that returns a pointer to Measuring.
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "native/posix/plugins/plugin.hpp"

namespace hvd::nccl {

inline constexpr const char* measuring_symbol = "horovod_measuring_plugin";

// What a rank has. No context is made for it.
struct Equipment {
  std::string driver;        // the newest CUDA that it knows, "12.8"
  std::string name, uuid;    // of the GPU
  int ordinal = 0;           // as the program counts: the only GPU that it sees, else the one of its local rank
  std::string nccl;          // the version that ranks would use, "2.28.9"
  std::string without_nccl;  // why there is none; empty if there is one
  std::string fault;         // what is known to be wrong with that version here; empty: nothing
};

// A rank's part in a measurement of a group.
struct Part {
  int ordinal = 0;
  int rank = 0, size = 1;     // in the group
  std::string id;             // of the communicator, the same for all
  std::vector<int> partners;  // with whom bytes are exchanged, one after the other; -1: with nobody, others do
  Deadline deadline = Deadline::never();
};
// In bytes a second; 0: not measured. Of an allreduce it is what each link of a ring would carry, so that groups of
// different sizes can be compared.
struct Rates {
  double allreduce = 0, best_partner = 0;
};

struct Measuring {
  posix::PluginStamp stamp;
  Result<Equipment> (*look)(const Environment& environment, int local_rank);
  Result<std::string> (*draw_id)(const Environment& environment);
  // Collective and blocking.
  Result<Rates> (*measure)(const Environment& environment, const Part& part);
};

}  // namespace hvd::nccl
