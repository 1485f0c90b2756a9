#pragma once
// The user's settings. They are read once from the environment and then stay constant. The parser, the help text and
// the documentation are all made from the rows in config.cpp, one for each knob.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "base/settings/environment.hpp"

namespace hvd {

// The ports from first to last. Zero means that the kernel chooses.
struct PortRange {
  std::uint16_t first = 0, last = 0;
  friend bool operator==(const PortRange&, const PortRange&) = default;
};

struct Config {
  std::int64_t fusion_threshold_bytes = 128ll << 20;
  std::int64_t device_fusion_threshold_bytes = 32ll << 20;
  double cycle_time_ms = 1;
  bool completes_on_stream = true;  // an operation on a device is done for the host before the device has done it
  std::int64_t cache_capacity = 1024;
  bool disable_group_fusion = false;  // an explicitly submitted group is not fused with other operations
  bool dynamic_process_sets = false;  // process sets may be added and removed after the start
  std::string thread_affinity;        // core of the engine's thread, by local rank, "0,4,8,12"; empty: any core of the
                                      // rank's mask
  std::string gpu_sharing = "if_needed";  // whether ranks of a node may share a GPU; or "always", "never"
  bool bind = true;                       // ranks bind themselves to processors near to their GPU
  bool stall_check_disable = false;
  double stall_check_time_s = 60;
  double stall_shutdown_time_s = 0;    // 0: the job is never ended because of a missing rank
  double start_timeout_s = 30;         // how long a start waits for the other ranks
  std::string bootstrap;               // name of the bootstrap; empty: the first one that applies
  std::string shared_dir;              // a folder that all nodes can access; empty: the working directory
  bool rendezvous_serve = false;       // rank 0 itself serves the store that the ranks meet at
  bool allow_singleton = false;        // a rank may run alone although several processes were launched
  std::string mpi;                     // which MPI is used: "mpich", "openmpi", "abi", "none"; empty: any that is found
  std::string cpu_operations;          // "gloo" means that no MPI is used unless `mpi` asks for one
  std::string nccl;                    // "0": NCCL is not used; "1": it must be; empty: wherever all ranks can
  bool mpi_threads_disable = false;    // an MPI is enough even if only one thread at a time may call it
  bool mpi_gpu_pointers = false;       // the MPI is asked whether it takes pointers to memory of GPUs
  bool pmi_bridge = true;              // horovodrun preloads a library that an MPICH without PMIx needs
  std::string algorithm;               // the user's algorithms, "allreduce=ring,broadcast=tree"; empty: the selector
                                       // chooses by cost
  std::string hierarchical_allreduce;  // of tensors on devices: "1" or "0"; empty: by cost
  bool hierarchical_allgather = false;        // allgather of tensors on devices goes through host memory
  bool deterministic = false;                 // no choice depends on measurements
  bool torus_allreduce = false;               // hierarchical allreduce uses links of the devices between nodes, too
  std::int64_t slab_chunk_bytes = 256 << 10;  // size of a chunk; each rank has two such chunks
  std::string network_interfaces;     // interfaces for connections between nodes, "eth0,ib0"; empty: all that are up
  PortRange port_range;               // ports of the sockets that listen for peers
  bool require_fabric = false;        // tensors between nodes may travel only over a fabric
  std::string timeline;               // file, or DYNAMIC; empty: none, and the program cannot start one later
  bool timeline_mark_cycles = false;  // the timeline has a mark for each decision on batches
  bool timeline_all_ranks = false;    // every rank writes a timeline, not only rank 0
  bool disable_nvtx_ranges = false;   // a profiler that asks for ranges gets none
  bool elastic = false;               // ranks may come and go
  double peer_timeout_s = 10;         // a node without a sign of life for this time is lost
  std::string stop_signals = "USR1,USR2,TERM";  // after one of these signals all ranks leave their loops
  double stop_margin_s = 30;                    // time between the last checkpoint and the scheduler's end of the job
  log::Style log;

  // Reads the settings. Fails on a malformed value; the error has the name, the value and what was expected. `warnings`
  // receives unknown HOROVOD_* names with the nearest known name, and known knobs that are set but not supported yet.
  static Result<Config> from(const Environment& environment, std::vector<std::string>& warnings);

  // Returns the knobs that must be equal on all ranks of a job, one line NAME=value for each.
  std::string equal_knobs() const;

  friend bool operator==(const Config&, const Config&) = default;
};

// The time by which a start must be complete, if it begins now.
inline Deadline start_deadline(const Config& config) {
  return Deadline::after(milliseconds_of(config.start_timeout_s));
}

// The user's decision whether tensors may travel over an MPI.
struct MpiUse {
  enum class When { never, between_nodes, always };
  When when = When::between_nodes;
  std::string why;  // the setting that decided, "HOROVOD_MPI=none"; empty if none did
};
MpiUse mpi_use(const Config& config);

// Returns what is wrong with a knob's value. Empty if the value is good or no knob has that name.
std::string fault_in(std::string_view name, const std::string& value);

// What the environment sets one knob to, for code that has no Config: the value is read as a Config reads it. If the
// value is missing or empty, the table's default counts, or `otherwise`, which a number without a default needs.
Result<bool> is_on(const Environment& environment, std::string_view name);
Result<double> number_of(const Environment& environment, std::string_view name, std::optional<double> otherwise = {});

// True if the knob treats two values as equal, such as "yes" and "1", or "10" and "10.0".
bool means_the_same(std::string_view name, std::string_view one, std::string_view other);

enum class KnobTrait : std::uint8_t {
  ordinary,
  missed,   // has no effect yet, although users rely on it: a user who sets it is warned
  unheard,  // has no effect yet, but nobody relies on it alone: no warning
  idle,     // known from Horovod and accepted, but has no effect here
  equal,    // must be equal on all ranks; otherwise ranks decide differently and wait for each other without end
};

// A row of the table of knobs, for help and documentation.
struct KnobRow {
  const char* name;  // name of the variable, HOROVOD_…
  const char* kind;  // kind of the value: "bytes", "seconds", "flag", …; for a choice the words, "mpi | gloo"
  const char* default_value;
  const char* meaning;
  KnobTrait trait = KnobTrait::ordinary;
  const char* setter = "";     // what sets it in place of users: "the launcher"
  double least = 0, most = 0;  // of a number

  bool has_no_effect() const;
  bool is_for_users() const { return !has_no_effect() && *setter == '\0'; }
};
std::span<const KnobRow> knobs();

// The headings of documentation, by the first knob below each.
struct KnobSection {
  const char* first_knob;
  const char* title;
  const char* text;
};
std::span<const KnobSection> knob_sections();
const KnobRow* knob_of(std::string_view name);  // null if there is no knob of that name

}  // namespace hvd
