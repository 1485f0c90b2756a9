#include "base/settings/config.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <limits>
#include <list>
#include <string_view>
#include <variant>

#include "base/text/number.hpp"
#include "base/text/spelling.hpp"
#include "base/text/trimmed.hpp"

namespace hvd {

namespace {

// The form of a knob's value, and which values are allowed.
struct Rule {
  // The value of flag_or_cost is a text, "1" or "0"; if it is not set, costs decide.
  enum class Form { flag, flag_or_cost, integer, decimal, choice, ports, text };
  const char* kind;  // the form for people; for a choice the allowed words, "mpi | gloo"
  Form form;
  double least = 0;
  double most = std::numeric_limits<double>::max();
};
constexpr Rule flag{"flag", Rule::Form::flag};
constexpr Rule flag_or_cost{"flag", Rule::Form::flag_or_cost};
constexpr Rule bytes{"bytes", Rule::Form::integer, 0, 1ll << 50};
constexpr Rule slab_bytes{"bytes", Rule::Form::integer, 4096, 1 << 30};
constexpr Rule count{"count", Rule::Form::integer, 0, 1ll << 40};
// The code that reads a value of this rule, or of int_seconds, has an int for it.
constexpr Rule int_count{"count", Rule::Form::integer, 0, std::numeric_limits<int>::max()};
constexpr Rule positive{"count", Rule::Form::integer, 1, 1ll << 40};
constexpr Rule port{"port", Rule::Form::integer, 0, 65535};
constexpr Rule ports{"first-last", Rule::Form::ports, 1, 65535};
constexpr Rule seconds{"seconds", Rule::Form::decimal};
constexpr Rule grace{"seconds", Rule::Form::decimal, 0, 86400};
constexpr Rule int_seconds{"seconds", Rule::Form::decimal, 0, std::numeric_limits<int>::max()};
constexpr Rule patience{"seconds", Rule::Form::decimal, 1, 1 << 20};
constexpr Rule milliseconds{"milliseconds", Rule::Form::decimal};
constexpr Rule variance{"variance", Rule::Form::decimal};
constexpr Rule text{"text", Rule::Form::text};
constexpr Rule name{"name", Rule::Form::text};
constexpr Rule path{"path", Rule::Form::text};
constexpr Rule log_level{"trace | debug | info | warning | error | fatal", Rule::Form::choice};
constexpr Rule mpi_kind{"mpich | openmpi | abi | none", Rule::Form::choice};
constexpr Rule nccl_use{"0 | 1", Rule::Form::choice};
constexpr Rule gpu_sharing{"if_needed | always | never", Rule::Form::choice};
constexpr Rule controller{"mpi | gloo", Rule::Form::choice};
constexpr Rule cpu_operations{"mpi | gloo | ccl", Rule::Form::choice};

// The field of the Config that receives the value. There is none for variables that other code reads from the
// environment, and for those that nothing reads.
using Place = std::variant<std::monostate, bool& (*)(Config&), std::int64_t& (*)(Config&), double& (*)(Config&),
                           std::string& (*)(Config&), log::Level& (*)(Config&), PortRange& (*)(Config&)>;
template <typename Value, Value Config::*member>
Value& at(Config& config) {
  return config.*member;
}
template <bool Config::*member>
constexpr auto flag_at = &at<bool, member>;
template <std::int64_t Config::*member>
constexpr auto integer_at = &at<std::int64_t, member>;
template <double Config::*member>
constexpr auto decimal_at = &at<double, member>;
template <std::string Config::*member>
constexpr auto text_at = &at<std::string, member>;
bool& log_hide_time(Config& config) {
  return config.log.hide_time;
}
log::Level& log_level_of(Config& config) {
  return config.log.level;
}
PortRange& port_range_of(Config& config) {
  return config.port_range;
}

struct Row {
  const char* name;
  Rule rule;
  const char* default_value;
  const char* meaning;
  Place place = {};
  KnobTrait trait = KnobTrait::ordinary;
  const char* setter = "";  // what sets it in place of users
};
constexpr KnobTrait missed = KnobTrait::missed, unheard = KnobTrait::unheard, idle = KnobTrait::idle,
                    ordinary = KnobTrait::ordinary, equal = KnobTrait::equal;
constexpr std::monostate nowhere;

constexpr KnobSection sections_of_knobs[] = {
    {"HOROVOD_FUSION_THRESHOLD", "Settings of jobs", ""},
    {"HOROVOD_RANK", "Set by launchers for the ranks", ""},
    {"HOROVOD_AUTOTUNE", "Not there yet",
     "These are known, so that they are not taken for typing errors, but have no effect."},
    {"HOROVOD_NUM_NCCL_STREAMS", "Known from Horovod and accepted, so that scripts run unchanged",
     "Most of these have no effect, because this library decides by itself or has no such part."},
    {"HOROVOD_WITH_MPI", "Read by the build (cmake/build_variables.cmake)",
     "They have no effect on a job, but images and profiles set them."},
};

// A new knob is a row here and a member of Config. A test checks that the member's default equals the row's.
// docs/settings writes docs/settings.md from this table.
constexpr Row rows[] = {
    {"HOROVOD_FUSION_THRESHOLD", bytes, "134217728",
     "most bytes of tensors that travel as one batch; 0: every tensor alone",
     integer_at<&Config::fusion_threshold_bytes>},
    {"HOROVOD_DEVICE_FUSION_THRESHOLD", bytes, "33554432",
     "the same for tensors in device memory: while a device has batches to carry out, the next one gathers tensors up "
     "to this size",
     integer_at<&Config::device_fusion_threshold_bytes>},
    {"HOROVOD_CYCLE_TIME", milliseconds, "1",
     "the longest time that a tensor in device memory waits for others to travel in one batch with it, while no "
     "program waits for it; while the device is idle, tensors wait only until they have 1 MB together, for 1 ms at "
     "most; 0: they never wait; tensors in host memory never wait for a clock",
     decimal_at<&Config::cycle_time_ms>},
    {"HOROVOD_ENABLE_ASYNC_COMPLETION", flag, "1",
     "0: an operation on a tensor in device memory is done when the device has done it, so that hvd.synchronize and "
     "hvd_wait wait for the device, too; 1: when its end is queued",
     flag_at<&Config::completes_on_stream>},
    {"HOROVOD_CACHE_CAPACITY", count, "1024", "operations whose agreement is remembered; 0: none",
     integer_at<&Config::cache_capacity>, equal},
    {"HOROVOD_DISABLE_GROUP_FUSION", flag, "0", "the operations of a group are fused with each other alone",
     flag_at<&Config::disable_group_fusion>, equal},
    {"HOROVOD_STALL_CHECK_DISABLE", flag, "0", "do not report tensors that some ranks never submit",
     flag_at<&Config::stall_check_disable>},
    {"HOROVOD_STALL_CHECK_TIME_SECONDS", seconds, "60",
     "how long a tensor waits for missing ranks before it is reported; 0: never",
     decimal_at<&Config::stall_check_time_s>},
    {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", seconds, "0",
     "how long a tensor waits for missing ranks before the job is ended; 0: it is not ended",
     decimal_at<&Config::stall_shutdown_time_s>},
    {"HOROVOD_START_TIMEOUT", seconds, "30", "how long the start waits for all ranks",
     decimal_at<&Config::start_timeout_s>},
    {"HOROVOD_BOOTSTRAP", name, "",
     "the way of joining the job (pmix, environment, single …); default: the first that is detected",
     text_at<&Config::bootstrap>},
    {"HOROVOD_RENDEZVOUS_SERVE", flag, "0",
     "for ranks that horovodrun did not start: rank 0 serves the store that the ranks meet at, at "
     "HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT, and the others wait for it (docs/launching.md)",
     flag_at<&Config::rendezvous_serve>},
    {"HOROVOD_GLOO_IFACE", text, "",
     "network interfaces for the connections between nodes, separated by commas; default: all that are up",
     text_at<&Config::network_interfaces>},
    {"HOROVOD_PORT_RANGE", ports, "",
     "ports that ranks of other nodes connect to, where a firewall demands it, 20000-20100; at least one per rank of a "
     "node and one more",
     &port_range_of},
    {"HOROVOD_PEER_TIMEOUT", patience, "10",
     "a node that gives no sign of life for so long is lost; connections between nodes wait at least 3; horovodrun "
     "waits half as long for a host, at least 3",
     decimal_at<&Config::peer_timeout_s>},
    {"HOROVOD_STOP_SIGNALS", text, "USR1,USR2,TERM",
     "signals that make hvd.should_stop() true on all ranks, separated by commas; caught from the first call of it on, "
     "or from hvd.init() on if this is set; none: no signal",
     text_at<&Config::stop_signals>},
    {"HOROVOD_STOP_MARGIN_SECONDS", seconds, "30",
     "time that is left before the scheduler's end of the job when a last checkpoint has been written",
     decimal_at<&Config::stop_margin_s>},
    {"HOROVOD_REQUIRE_FABRIC", flag, "0", "refuse to start where tensors would go between nodes over plain sockets",
     flag_at<&Config::require_fabric>, equal},
    {"HOROVOD_SHARED_DIR", path, "",
     "folder that all nodes see, through which ranks of srun --mpi=none meet; default: the working directory",
     text_at<&Config::shared_dir>},
    {"HOROVOD_ALLOW_SINGLETON", flag, "0",
     "a process that was started as one of several, but found none of them, may train alone",
     flag_at<&Config::allow_singleton>},
    {"HOROVOD_MPI", mpi_kind, "",
     "MPI to use, also between ranks of one node; none: no MPI; default: the one that the program has loaded, or that "
     "can be loaded, between nodes",
     text_at<&Config::mpi>, equal},
    {"HOROVOD_NCCL", nccl_use, "",
     "0: tensors on GPUs go through host memory, not over NCCL; 1: it is an error if NCCL cannot be used; default: "
     "NCCL is used if all ranks have it",
     text_at<&Config::nccl>, equal},
    {"HOROVOD_NCCL_LIBRARY", path, "",
     "file of the NCCL library; default: the one that the program has loaded, else libnccl.so.2, where the loader "
     "finds it, else that of PyPI's nvidia-nccl"},
    {"HOROVOD_MPI_GPU_POINTERS", flag, "0",
     "1: ask the MPI that is used between nodes whether it takes pointers to memory of GPUs, and answer at the start; "
     "tensors of GPUs go to MPI through page-locked host memory in either case",
     flag_at<&Config::mpi_gpu_pointers>},
    {"HOROVOD_MPI_THREADS_DISABLE", flag, "0",
     "an MPI that only one thread at a time may call (MPI_THREAD_SERIALIZED) is enough; the program then makes no MPI "
     "calls of its own",
     flag_at<&Config::mpi_threads_disable>, equal},
    {"HOROVOD_ALGORITHM", text, "", "algorithm by collective, allreduce=ring,broadcast=tree; default: by cost",
     text_at<&Config::algorithm>, equal},
    {"HOROVOD_HIERARCHICAL_ALLREDUCE", flag_or_cost, "",
     "allreduce of tensors in device memory, between nodes; 1: over the node's devices, then along the rails, wherever "
     "that is possible; 0: flat; default: by cost. Tensors in host memory go so anyway",
     text_at<&Config::hierarchical_allreduce>, equal},
    {"HOROVOD_HIERARCHICAL_ALLGATHER", flag, "0",
     "allgather of tensors in device memory goes through host memory, where it is hierarchical, also if links of "
     "devices carry it; default: by cost",
     flag_at<&Config::hierarchical_allgather>, equal},
    {"HOROVOD_TORUS_ALLREDUCE", flag, "0",
     "as HOROVOD_HIERARCHICAL_ALLREDUCE=1, and links of the devices are used along the rails, too, where there are any",
     flag_at<&Config::torus_allreduce>, equal},
    {"HOROVOD_SLAB_CHUNK", slab_bytes, "262144",
     "bytes of a batch in shared memory that a rank works on at a time; values below 16384, or below 64 for each rank "
     "of the node, count as that, values above 67108864 as that; each rank has room for two such chunks",
     integer_at<&Config::slab_chunk_bytes>, equal},
    {"HOROVOD_DYNAMIC_PROCESS_SETS", flag, "0", "process sets may be added and removed after the start",
     flag_at<&Config::dynamic_process_sets>, equal},
    {"HOROVOD_THREAD_AFFINITY", text, "",
     "core of the engine's thread, by local rank, separated by commas; default: any that the rank may use",
     text_at<&Config::thread_affinity>},
    {"HOROVOD_GPU_SHARING", gpu_sharing, "if_needed",
     "whether ranks of a node may share a GPU; if_needed: where there are more ranks than GPUs, with a warning",
     text_at<&Config::gpu_sharing>, equal},
    {"HOROVOD_BIND", flag, "1",
     "on machines with GPUs, ranks that their launcher has not bound bind themselves to processors near to their GPU",
     flag_at<&Config::bind>, equal},
    {"HOROVOD_DETERMINISTIC", flag, "0",
     "no choice depends on measurements, so runs of equal jobs make equal choices: reductions in stages on devices cut "
     "their batches by assumed costs",
     flag_at<&Config::deterministic>, equal},
    {"HOROVOD_TIMELINE", path, "",
     "file for the timeline of operations, which rank 0 writes; DYNAMIC: the program says when (start_timeline)",
     text_at<&Config::timeline>},
    {"HOROVOD_TIMELINE_MARK_CYCLES", flag, "0", "mark in the timeline when a batch was decided on (CYCLE_START)",
     flag_at<&Config::timeline_mark_cycles>},
    {"HOROVOD_TIMELINE_ALL_RANKS", flag, "0",
     "the other ranks write timelines, too: the file's name with .1, .2, … at its end; python -m horovod.timeline "
     "merge makes one of them",
     flag_at<&Config::timeline_all_ranks>},
    {"HOROVOD_DISABLE_NVTX_RANGES", flag, "0",
     "no ranges for NVIDIA's profilers, which get one for each operation otherwise (nsys profile)",
     flag_at<&Config::disable_nvtx_ranges>},
    {"HOROVOD_LOG_LEVEL", log_level, "warning", "least level of messages that are shown", &log_level_of},
    {"HOROVOD_LOG_HIDE_TIME", flag, "0", "leave the time out of messages", &log_hide_time},
    {"HOROVOD_GRADIENT_VIEWS", flag, "0", "DistributedOptimizer keeps gradients in memory that the node's ranks share"},
    {"HOROVOD_HDF5", path, "",
     "file of the HDF5 library for checkpoints; default: the first of 1.10 or later that the loader finds, else "
     "h5py's"},
    {"HOROVOD_PLUGIN_PATH", path, "",
     "folders, separated by colons, where plugins are looked for besides the library's own folder"},
    {"HOROVOD_SITE_CONFIG", path, "",
     "the site's settings, a file; none: no such file; default: etc/horovod/site.yaml in the nearest folder above the "
     "installed library that has it"},
    {"HOROVOD_CUDA_DRIVER", path, "",
     "file of NVIDIA's driver library; default: libcuda.so.1, where the loader finds it"},
    {"HOROVOD_BATCH_D2D_MEMCOPIES", flag, "1",
     "GPU: one kernel copies the tensors of a batch; 0: they are copied one by one, for GPUs on which no kernel can be "
     "loaded"},
    {"HOROVOD_GPU_ROOT", path, "",
     "folder in which proc/driver/nvidia and dev are looked for, for tests; default: those of the system"},
    {"HOROVOD_FAKE_NODE", text, "",
     "for tests: ranks with other values are on other nodes, though they share a machine"},
    {"HOROVOD_ROOT", path, "", "where the installation is, for build scripts", nowhere, ordinary, "modulefiles"},
    {"HOROVOD_MPIEXEC", path, "", "horovodrun --mpi: the launcher to use; default: the mpiexec or mpirun along PATH"},
    {"HOROVOD_PMI_BRIDGE", flag, "1",
     "horovodrun: preload libhorovod_pmi_bridge.so into the ranks, by which an MPICH without PMIx finds the other "
     "ranks where the program starts it",
     flag_at<&Config::pmi_bridge>},
    {"HOROVOD_SSH", text, "ssh",
     "horovodrun: command to use in place of ssh; its arguments are -p and -i if these flags were given, a host, and a "
     "command for the shell there"},
    {"HOROVOD_REMOTE_PROGRAM", path, "",
     "horovodrun: where horovodrun is on other hosts; default: where it is on this one"},
    {"HOROVOD_TERMINATION_GRACE_SECONDS", grace, "5", "horovodrun: time that ranks have after SIGTERM before SIGKILL"},
    {"HOROVOD_ELASTIC_RESET_LIMIT", count, "",
     "how often hvd.elastic.run begins again; then it ends the job; default: no limit"},
    {"HOROVOD_ELASTIC_TIMEOUT", int_seconds, "600",
     "horovodrun: how long an elastic job waits for the least number of ranks (--min-np), and for a rank that does not "
     "answer"},
    {"HOROVOD_MAX_REQUEUES", int_count, "0",
     "horovodrun, job scripts: how often a job whose ranks end with exit code 75 is put back into the queue"},
    {"HOROVOD_CONTAINER_RUNTIME", name, "",
     "horovodrun --container: apptainer, singularity, ch-run, podman-hpc or enroot; default: the first that is there "
     "and takes the image"},

    {"HOROVOD_RANK", count, "", "this process's rank", nowhere, ordinary, "the launcher"},
    {"HOROVOD_SIZE", positive, "", "number of ranks", nowhere, ordinary, "the launcher"},
    {"HOROVOD_LOCAL_RANK", count, "", "rank among those of this node", nowhere, ordinary, "the launcher"},
    {"HOROVOD_LOCAL_SIZE", positive, "", "number of ranks of this node", nowhere, ordinary, "the launcher"},
    {"HOROVOD_CROSS_RANK", count, "", "this node among those that have the local rank", nowhere, ordinary,
     "the launcher"},
    {"HOROVOD_CROSS_SIZE", positive, "", "number of nodes that have the local rank", nowhere, ordinary, "the launcher"},
    {"HOROVOD_HOSTNAME", name, "", "the host's name in the job", nowhere, ordinary, "the launcher"},
    {"HOROVOD_OWNER", text, "",
     "the process that is the rank, and of which launch; its children must not join in its place", nowhere, ordinary,
     "the library"},
    {"HOROVOD_ELASTIC", flag, "0", "the ranks of this job come and go (--min-np)", flag_at<&Config::elastic>, equal,
     "horovodrun"},
    {"HOROVOD_ELASTIC_PROCESS", count, "",
     "number of this process in an elastic job, which it keeps while its rank changes", nowhere, ordinary,
     "horovodrun"},
    {"HOROVOD_ELASTIC_SLOT", int_count, "", "slot of this process on its host in an elastic job, which decides its GPU",
     nowhere, ordinary, "horovodrun"},
    {"HOROVOD_CONTAINER", text, "", "the image that the rank runs in (--container)", nowhere, ordinary, "horovodrun"},
    {"HOROVOD_CONTAINER_BIND", text, "",
     "more folders that the image sees, source[:target], separated by commas (--container-bind)", nowhere, ordinary,
     "horovodrun"},
    {"HOROVOD_CONTAINER_MPI", path, "", "the host's MPI for the image (--container-mpi)", nowhere, ordinary,
     "horovodrun"},
    {"HOROVOD_THREAD_SHARE", count, "", "the OMP_NUM_THREADS that it chose where there was none", nowhere, ordinary,
     "horovodrun"},
    {"HOROVOD_STARTED_AT", text, "",
     "when it started the job, in seconds since 1970; rank 0 then says how long the start took", nowhere, ordinary,
     "horovodrun --verbose"},
    {"HOROVOD_LOCAL_STORE", text, "", "its store of what the ranks tell each other at start", nowhere, ordinary,
     "horovodrun"},
    {"HOROVOD_GLOO_RENDEZVOUS_ADDR", text, "",
     "addresses or names of the host whose store the ranks meet at, separated by commas", nowhere, ordinary,
     "horovodrun"},
    {"HOROVOD_GLOO_RENDEZVOUS_PORT", port, "", "port of the store that the ranks meet at", nowhere, ordinary,
     "horovodrun"},
    {"HOROVOD_SECRET_KEY", text, "", "what only the job's processes know, 16 bytes or more", nowhere, ordinary,
     "horovodrun"},
    {"HOROVOD_RUN_ADDRESSES", text, "", "addresses of the program that called it, separated by commas", nowhere,
     ordinary, "horovod.run"},
    {"HOROVOD_RUN_PORT", port, "", "port of the program that called it", nowhere, ordinary, "horovod.run"},
    {"HOROVOD_RUN_KEY", text, "", "what only the program that called it and the ranks know", nowhere, ordinary,
     "horovod.run"},
    {"HOROVOD_LOCAL_STORE_SECRET", text, "", "what a rank shows to its store", nowhere, ordinary, "horovodrun"},

    {"HOROVOD_AUTOTUNE", flag, "0", "search the best settings while training", nowhere, missed},
    {"HOROVOD_AUTOTUNE_LOG", path, "", "CSV file for what autotuning tried", nowhere, missed},
    {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", count, "3", "first samples that autotuning drops", nowhere, unheard},
    {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", count, "10", "steps of one sample of autotuning; 0: the default", nowhere,
     unheard},
    {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", count, "20", "samples after which autotuning settles; 0: the default",
     nowhere, unheard},
    {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", variance, "0.8", "noise that autotuning assumes", nowhere, unheard},
    {"HOROVOD_ADASUM_MPI_CHUNK_SIZE", bytes, "1073741824", "Adasum: most bytes of one message", nowhere, unheard},
    {"HOROVOD_ENABLE_XLA_OPS", flag, "0", "TensorFlow: operations inside XLA's graphs", nowhere, missed},

    {"HOROVOD_NUM_NCCL_STREAMS", count, "1",
     "the operations of a process set use one stream for NCCL, in the order that all ranks have agreed on", nowhere,
     idle},
    {"HOROVOD_CONTROLLER", controller, "", "agreement needs neither MPI nor Gloo", nowhere, idle},
    {"HOROVOD_CPU_OPERATIONS", cpu_operations, "",
     "gloo: no MPI, unless HOROVOD_MPI asks for it; else no effect, transports are chosen by what reaches the ranks",
     text_at<&Config::cpu_operations>, equal},
    {"HOROVOD_CCL_CACHE", flag, "0", "there is no oneCCL here", nowhere, idle},
    {"HOROVOD_GLOO_TIMEOUT_SECONDS", seconds, "30", "there is no Gloo here (see HOROVOD_START_TIMEOUT)", nowhere, idle},
    {"HOROVOD_SPARK_START_TIMEOUT", seconds, "600", "there is no horovod.spark yet", nowhere, idle},
    {"HOROVOD_SPARK_PYTHONPATH", text, "", "there is no horovod.spark yet", nowhere, idle},
    {"HOROVOD_SPARK_WORK_DIR", path, "", "there is no horovod.spark yet", nowhere, idle},
    {"HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", flag, "0", "there is no horovod.spark yet", nowhere, idle},

    {"HOROVOD_WITH_MPI", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITHOUT_MPI", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITH_GLOO", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITHOUT_GLOO", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITH_TENSORFLOW", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITHOUT_TENSORFLOW", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITH_PYTORCH", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITHOUT_PYTORCH", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITH_MXNET", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITHOUT_MXNET", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITH_NVTX", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_WITHOUT_NVTX", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_GPU", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_GPU_OPERATIONS", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_GPU_ALLREDUCE", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_GPU_ALLGATHER", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_GPU_BROADCAST", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_GPU_ALLTOALL", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_GPU_REDUCESCATTER", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_ALLOW_MIXED_GPU_IMPL", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_CUDA_HOME", path, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_NCCL_HOME", path, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_NCCL_INCLUDE", path, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_NCCL_LIB", path, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_NCCL_LINK", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_ROCM_HOME", path, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_BUILD_ARCH_FLAGS", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_BUILD_CUDA_CC_LIST", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_CMAKE", path, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_BUILD_FLAGS", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_NVTX_INCLUDE", path, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_DEBUG", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_SKIP_COMPILE", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_LOCAL_VERSION", text, "", "of the build (docs/migration.md)", nowhere, idle},
    {"HOROVOD_TEST_GPU", text, "", "of Horovod's tests", nowhere, idle},
    {"HOROVOD_MIXED_INSTALL", text, "", "of Horovod's tests", nowhere, idle},
};
constexpr bool can_store(const Row& row) {
  if (std::holds_alternative<std::monostate>(row.place)) return true;
  bool is_text = std::holds_alternative<std::string& (*)(Config&)>(row.place);
  switch (row.rule.form) {
    case Rule::Form::flag: return std::holds_alternative<bool& (*)(Config&)>(row.place);
    case Rule::Form::integer: return std::holds_alternative<std::int64_t& (*)(Config&)>(row.place);
    case Rule::Form::decimal: return std::holds_alternative<double& (*)(Config&)>(row.place);
    case Rule::Form::ports: return std::holds_alternative<PortRange& (*)(Config&)>(row.place);
    case Rule::Form::choice: return is_text || std::holds_alternative<log::Level& (*)(Config&)>(row.place);
    case Rule::Form::flag_or_cost:
    case Rule::Form::text: return is_text;
  }
  return false;
}
static_assert(std::ranges::all_of(rows, can_store), "take() checks a knob's value, but its place is for another form");
static_assert(std::ranges::all_of(rows,
                                  [](const Row& row) {
                                    return row.trait != equal ||
                                           std::holds_alternative<bool& (*)(Config&)>(row.place) ||
                                           std::holds_alternative<std::int64_t& (*)(Config&)>(row.place) ||
                                           std::holds_alternative<std::string& (*)(Config&)>(row.place);
                                  }),
              "equal_knobs() does not compare a knob of this kind");
#ifndef __SANITIZE_ADDRESS__  // with its sanitizers GCC takes the comparison of two functions for no constant
static_assert(std::ranges::all_of(rows,
                                  [](const Row& row) {
                                    return std::holds_alternative<std::monostate>(row.place) ||
                                           std::ranges::count(rows, row.place, &Row::place) == 1;
                                  }),
              "two knobs have one place: a row that was copied sets the field of the other one");
#endif
static_assert(std::ranges::all_of(rows,
                                  [](const Row& row) {
                                    return std::holds_alternative<std::monostate>(row.place) ||
                                           (row.rule.form != Rule::Form::flag && row.rule.form != Rule::Form::integer &&
                                            row.rule.form != Rule::Form::decimal) ||
                                           *row.default_value != '\0';
                                  }),
              "a flag or a number has a default, which the page of settings shows");

std::string lower(std::string_view value) {
  std::string result(value);
  for (char& letter : result) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return result;
}

template <typename Number>
std::optional<Number> signed_number_in(std::string_view value) {
  if (value.starts_with('+')) value.remove_prefix(1);
  return number_in<Number>(value);
}

std::optional<bool> flag_in(std::string_view value) {
  if (auto number = signed_number_in<std::int64_t>(value)) return *number > 0;
  std::string word = lower(value);
  if (word == "true" || word == "on" || word == "yes") return true;
  if (word == "false" || word == "off" || word == "no") return false;
  return std::nullopt;
}

// Returns the position of the value among words such as "mpi | gloo | ccl".
std::optional<int> choice_in(std::string_view words, std::string_view value) {
  std::string wanted = lower(value);
  for (int position = 0; !words.empty(); ++position) {
    auto bar = words.find('|');
    if (trimmed(words.substr(0, bar)) == wanted) return position;
    words.remove_prefix(bar == std::string_view::npos ? words.size() : bar + 1);
  }
  return std::nullopt;
}

std::optional<PortRange> ports_in(std::string_view value) {
  auto dash = value.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  auto first = signed_number_in<std::uint16_t>(trimmed(value.substr(0, dash)));
  auto last = signed_number_in<std::uint16_t>(trimmed(value.substr(dash + 1)));
  if (!first || !last || *first == 0 || *first > *last) return std::nullopt;
  return PortRange{*first, *last};
}

std::string as_text(double limit) {
  return std::floor(limit) == limit && std::abs(limit) < 9e18 ? std::to_string(static_cast<std::int64_t>(limit))
                                                              : std::to_string(limit);
}

std::string expectation(const Rule& rule) {
  switch (rule.form) {
    case Rule::Form::flag_or_cost:
    case Rule::Form::flag: return "1, true, on, yes or 0, false, off, no";
    case Rule::Form::choice: return std::string("one of ") + rule.kind;
    case Rule::Form::text: return rule.kind;
    case Rule::Form::ports: return "two ports from 1 to 65535, the lower one first, as in 20000-20100";
    case Rule::Form::integer:
      return std::string("a whole number of ") + rule.kind + " from " + as_text(rule.least) + " to " +
             as_text(rule.most);
    case Rule::Form::decimal:
      return std::string("a number (") + rule.kind + ") not below " + as_text(rule.least) +
             (rule.most < std::numeric_limits<double>::max() ? " nor above " + as_text(rule.most) : "");
  }
  return rule.kind;
}

template <typename Value, typename Found>
void store(const Row& row, Config& config, const Found& found) {
  if (auto place = std::get_if<Value& (*)(Config&)>(&row.place)) (*place)(config) = Value(found);
}

// Stores the value. Returns false if it breaks the row's rule.
bool take(const Row& row, std::string_view value, Config& config) {
  auto allowed = [&](double number) { return number >= row.rule.least && number <= row.rule.most; };
  switch (row.rule.form) {
    case Rule::Form::flag: {
      auto found = flag_in(value);
      if (found) store<bool>(row, config, *found);
      return found.has_value();
    }
    case Rule::Form::flag_or_cost: {
      auto found = flag_in(value);
      if (found) store<std::string>(row, config, *found ? "1" : "0");
      return found.has_value();
    }
    case Rule::Form::integer: {
      auto found = signed_number_in<std::int64_t>(value);
      if (!found || !allowed(static_cast<double>(*found))) return false;
      store<std::int64_t>(row, config, *found);
      return true;
    }
    case Rule::Form::decimal: {
      auto found = signed_number_in<double>(value);
      if (!found || !std::isfinite(*found) || !allowed(*found)) return false;
      store<double>(row, config, *found);
      return true;
    }
    case Rule::Form::ports: {
      auto found = ports_in(value);
      if (found) store<PortRange>(row, config, *found);
      return found.has_value();
    }
    case Rule::Form::choice: {
      auto found = choice_in(row.rule.kind, value);
      if (found) store<log::Level>(row, config, *found);
      if (found) store<std::string>(row, config, lower(value));
      return found.has_value();
    }
    case Rule::Form::text: store<std::string>(row, config, value); return true;
  }
  return false;
}

Error malformed(const Row& row, const std::string& value) {
  std::string remedy = *row.default_value == '\0'
                           ? "correct it or unset it"
                           : std::string("correct it, or unset it for the default ") + row.default_value;
  return {ErrorCode::invalid_argument, std::string(row.name) + "=" + value + ": expected " + expectation(row.rule) +
                                           ", found '" + value + "'; " + remedy};
}

// False if the value changes nothing: it is a flag that is off, or it equals the default.
bool asks_for_something(const Row& row, std::string_view value) {
  if (row.rule.form == Rule::Form::flag) return flag_in(value).value_or(false);
  return value != row.default_value;
}

std::string beginning_of_meaning(const Row& row) {
  switch (row.trait) {
    case missed:
    case unheard: return "no effect in this version: ";
    case idle: return "no effect: ";
    case ordinary:
    case equal: break;
  }
  return *row.setter == '\0' ? "" : std::string("set by ") + row.setter + ": ";
}

std::string default_of(std::string_view name) {
  const KnobRow* knob = knob_of(name);
  return knob == nullptr ? "" : knob->default_value;
}

// The value without the blanks around it; empty if there is none.
Result<std::string> value_of(const Environment& environment, std::string_view name) {
  const std::string value = environment.get(name).value_or("");
  if (std::string fault = fault_in(name, value); !fault.empty()) return Error(ErrorCode::invalid_argument, fault);
  return std::string(trimmed(value));
}

std::string unknown_name(std::string_view found) {
  std::vector<std::string_view> names;
  for (const Row& row : rows) names.emplace_back(std::string_view(row.name).substr(8));
  std::string_view nearest = nearest_name(found.substr(8), names);
  std::string warning = "unknown variable " + std::string(found) + " has no effect";
  return nearest.empty() ? warning + "; horovodrun --help lists the known ones"
                         : warning + "; did you mean HOROVOD_" + std::string(nearest) + "?";
}

}  // namespace

Result<Config> Config::from(const Environment& environment, std::vector<std::string>& warnings) {
  Config config;
  for (const auto& [variable, raw_value] : environment.variables()) {
    if (!variable.starts_with("HOROVOD_")) continue;
    auto row = std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return variable == r.name; });
    if (row == std::end(rows)) {
      warnings.push_back(unknown_name(variable));
      continue;
    }
    std::string_view value = trimmed(raw_value);
    if (value.empty()) continue;  // in a shell, "HOROVOD_X= command" means that HOROVOD_X is not set
    if (!take(*row, value, config)) return malformed(*row, raw_value);
    if (row->trait == missed && asks_for_something(*row, value))
      warnings.push_back(variable + "=" + raw_value + " has no effect in this version (" + row->meaning + ")");
  }
  return config;
}

std::string fault_in(std::string_view name, const std::string& value) {
  auto row = std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return name == r.name; });
  Config unused;
  if (row == std::end(rows) || trimmed(value).empty() || take(*row, trimmed(value), unused)) return "";
  return malformed(*row, value).message;
}

Result<bool> is_on(const Environment& environment, std::string_view name) {
  auto value = value_of(environment, name);
  if (!value) return std::move(value.error());
  auto found = flag_in(value->empty() ? default_of(name) : *value);
  if (!found) panic("is_on() is for flags with a default, not for " + std::string(name));
  return *found;
}

Result<double> number_of(const Environment& environment, std::string_view name, std::optional<double> otherwise) {
  auto value = value_of(environment, name);
  if (!value) return std::move(value.error());
  if (value->empty() && otherwise) return *otherwise;
  auto found = signed_number_in<double>(value->empty() ? default_of(name) : *value);
  if (!found) panic("number_of() is for numbers, with a default or `otherwise`, not for " + std::string(name));
  return *found;
}

bool means_the_same(std::string_view name, std::string_view one, std::string_view other) {
  one = trimmed(one);
  other = trimmed(other);
  auto row = std::find_if(std::begin(rows), std::end(rows), [&](const Row& r) { return name == r.name; });
  if (one == other || row == std::end(rows)) return one == other;
  switch (row->rule.form) {
    case Rule::Form::flag_or_cost:
    case Rule::Form::flag: return flag_in(one) && flag_in(one) == flag_in(other);
    case Rule::Form::choice: return lower(one) == lower(other);
    case Rule::Form::ports: return ports_in(one) && ports_in(one) == ports_in(other);
    case Rule::Form::integer:
    case Rule::Form::decimal: {
      auto number = signed_number_in<double>(one);
      return number && number == signed_number_in<double>(other);
    }
    case Rule::Form::text: break;
  }
  return false;
}

MpiUse mpi_use(const Config& config) {
  if (config.mpi == "none") return {MpiUse::When::never, "HOROVOD_MPI=none"};
  if (!config.mpi.empty()) return {MpiUse::When::always, "HOROVOD_MPI=" + config.mpi};
  if (config.cpu_operations == "gloo") return {MpiUse::When::never, "HOROVOD_CPU_OPERATIONS=gloo"};
  return {};
}

std::string Config::equal_knobs() const {
  std::string all;
  Config copy = *this;  // the functions in Place need a Config that is not const
  for (const Row& row : rows) {
    if (row.trait != equal) continue;
    all += std::string(row.name) + "=";
    if (auto integer = std::get_if<std::int64_t& (*)(Config&)>(&row.place)) all += std::to_string((*integer)(copy));
    if (auto flag_place = std::get_if<bool& (*)(Config&)>(&row.place)) all += (*flag_place)(copy) ? "1" : "0";
    if (auto text_place = std::get_if<std::string& (*)(Config&)>(&row.place)) all += (*text_place)(copy);
    all += "\n";
  }
  return all;
}

std::span<const KnobRow> knobs() {
  static const std::vector<KnobRow> shown = [] {
    std::vector<KnobRow> result;
    static std::list<std::string> meanings;
    for (const Row& row : rows) {
      meanings.push_back(beginning_of_meaning(row) + row.meaning);
      result.push_back({row.name, row.rule.kind, row.default_value, meanings.back().c_str(), row.trait, row.setter,
                        row.rule.least, row.rule.most});
    }
    return result;
  }();
  return shown;
}

std::span<const KnobSection> knob_sections() {
  return sections_of_knobs;
}

bool KnobRow::has_no_effect() const {
  return trait == missed || trait == unheard || trait == idle;
}

const KnobRow* knob_of(std::string_view name) {
  auto rows_shown = knobs();
  auto row = std::find_if(rows_shown.begin(), rows_shown.end(), [&](const KnobRow& knob) { return name == knob.name; });
  return row == rows_shown.end() ? nullptr : &*row;
}

}  // namespace hvd
