#pragma once
// What the user may set, read once from the environment into a constant. One row per knob in config.cpp makes the
// parser, the help text and the documentation.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace hvd {

// Ports from first to last; 0: the kernel chooses.
struct PortRange {
  std::uint16_t first = 0, last = 0;
  friend bool operator==(const PortRange&, const PortRange&) = default;
};

struct Config {
  std::int64_t fusion_threshold_bytes = 128ll << 20;
  std::int64_t cache_capacity = 1024;
  bool disable_group_fusion = false;  // what was submitted as a group is fused with nothing else
  bool dynamic_process_sets = false;  // sets may be added and removed after the start
  std::string thread_affinity;        // core of the engine's thread, by local rank, "0,4,8,12"; empty: any of the mask
  bool stall_check_disable = false;
  double stall_check_time_s = 60;
  double stall_shutdown_time_s = 0;           // 0: never
  double start_timeout_s = 30;                // for peers to appear at start
  std::string bootstrap;                      // name of the bootstrap to use; empty: the first that is detected
  std::string shared_dir;                     // a folder that all nodes see; empty: the working directory
  bool allow_singleton = false;               // a rank that finds none of several others may run alone
  std::string mpi;                            // "mpich", "openmpi", "abi", "none"; empty: any that is there
  std::string cpu_operations;                 // "gloo": no MPI unless `mpi` asks for it
  bool mpi_threads_disable = false;           // an MPI that one thread at a time may call is enough
  bool pmi_bridge = true;                     // horovodrun preloads what an MPICH without PMIx needs
  std::string algorithm;                      // "allreduce=ring,broadcast=tree": overrides the selector; empty: by cost
  std::int64_t slab_chunk_bytes = 256 << 10;  // per rank, two of them: the pipeline's step through a batch
  std::string network_interfaces;             // that connections between nodes use, "eth0,ib0"; empty: all that are up
  PortRange port_range;                       // of the sockets that peers connect to
  bool require_fabric = false;                // between nodes only a fabric may carry tensors
  std::string timeline;                       // file, or DYNAMIC; empty: none, and the program cannot start one
  bool timeline_mark_cycles = false;          // mark in it when a batch was decided on
  bool timeline_all_ranks = false;            // all ranks write one, not only rank 0
  double peer_timeout_s = 10;                 // a node that gives no sign of life for this time is lost
  log::Style log;

  // Fails on a malformed value; the error has the name, the value and what was expected. `warnings` gets unknown
  // HOROVOD_* names with the nearest known name, and known ones that ask for what does not exist yet.
  static Result<Config> from(const Environment& environment, std::vector<std::string>& warnings);

  // The knobs that must be equal on all ranks of a job, a line NAME=value each.
  std::string equal_knobs() const;

  friend bool operator==(const Config&, const Config&) = default;
};

// For something that begins now and needs all ranks.
inline Deadline start_deadline(const Config& config) {
  return Deadline::after(milliseconds_of(config.start_timeout_s));
}

// Whether tensors may travel over an MPI, as far as the user decides it.
struct MpiWish {
  enum class When { never, between_nodes, always };
  When when = When::between_nodes;
  std::string why;  // the setting that says so, "HOROVOD_MPI=none"; empty: none does
};
MpiWish mpi_wish(const Config& config);

// What is wrong with the value of a knob; empty if nothing is, or there is no knob of that name.
std::string fault_in(std::string_view name, const std::string& value);

// Whether a knob makes the same of two values: "yes" and "1", "10" and "10.0".
bool means_the_same(std::string_view name, std::string_view one, std::string_view other);

// A row of the table, for help and documentation.
struct KnobRow {
  const char* name;  // HOROVOD_…
  const char* kind;  // "bytes", "seconds", "flag", …
  const char* default_value;
  const char* meaning;
};
std::span<const KnobRow> knobs();
const KnobRow* knob_of(std::string_view name);  // null if there is none

}  // namespace hvd
