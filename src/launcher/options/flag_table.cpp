// The flags of horovodrun, one row each. Adding a flag that only sets a variable is adding a row.
#include "launcher/options/flags.hpp"

namespace hvd::launcher {
namespace {

using enum Kind;
using enum Range;
using enum Written;

constexpr const char* elastic = "elastic jobs (ranks that come and go) are not in this version";

// clang-format off
constexpr FlagRow rows[] = {
    // name, spellings, negations, kind, range, variable, written, needs, key, lacking, help
    {"help", "-h --help", "", action, any, nullptr, as_given, nullptr, nullptr, nullptr, "show this text"},
    {"version", "-v --version", "", action, any, nullptr, as_given, nullptr, nullptr, nullptr, "show the version"},
    {"check_build", "-cb --check-build", "", action, any, nullptr, as_given, nullptr, nullptr, nullptr, "show the frameworks, controllers, operations and plugins that are available"},
    {"explain", "--explain", "", action, any, nullptr, as_given, nullptr, nullptr, nullptr, "start nothing; show which scheduler, launcher, bootstrap, transport and algorithm would be used, and why"},
    {"num_proc", "-np --num-proc", "", integer, at_least_1, nullptr, as_given, nullptr, nullptr, nullptr, "number of ranks to start; required"},
    {"hosts", "-H --hosts", "", text, any, nullptr, as_given, nullptr, nullptr, nullptr, "hosts and their slots, host1:4,host2:4"},
    {"hostfile", "-hostfile --hostfile", "", text, any, nullptr, as_given, nullptr, nullptr, nullptr, "file of lines 'host slots=N' instead of -H"},
    {"oversubscribe", "--oversubscribe", "", toggle, any, nullptr, as_given, nullptr, nullptr, nullptr, "allow any number of ranks on this machine's cores"},
    {"verbose", "--verbose", "", toggle, any, nullptr, as_given, nullptr, nullptr, nullptr, "say what is done: start times, binding of every rank"},
    {"config_file", "--config-file", "", text, any, nullptr, as_given, nullptr, nullptr, nullptr, "YAML file with values for these flags; the command line wins"},
    {"output_filename", "--output-filename", "", text, any, nullptr, as_given, nullptr, nullptr, nullptr, "folder that also gets the output, in rank.<rank>/stdout and rank.<rank>/stderr"},
    {"prefix_output_with_timestamp", "-prefix-timestamp --prefix-output-with-timestamp", "", toggle, any, nullptr, as_given, nullptr, nullptr, nullptr, "put the time before every line of output"},
    {"start_timeout", "--start-timeout", "", integer, at_least_1, "HOROVOD_START_TIMEOUT", as_given, nullptr, nullptr, nullptr, "seconds that the ranks wait for each other at the start"},
    {"nics", "--network-interfaces --network-interface", "", list, any, "NCCL_SOCKET_IFNAME", as_given, nullptr, nullptr, nullptr, "network interfaces to use between hosts, separated by commas"},
    {"disable_cache", "--disable-cache", "", toggle, any, nullptr, as_given, nullptr, nullptr, nullptr, "no effect: nothing about hosts is cached"},
    {"ssh_port", "-p --ssh-port", "", integer, at_least_1, nullptr, as_given, nullptr, nullptr, nullptr, "ssh port of other hosts"},
    {"ssh_identity_file", "-i --ssh-identity-file", "", text, any, nullptr, as_given, nullptr, nullptr, nullptr, "ssh key for other hosts"},

    {"fusion_threshold_mb", "--fusion-threshold-mb", "", integer, at_least_0, "HOROVOD_FUSION_THRESHOLD", mebibytes, nullptr, "params.fusion_threshold_mb", nullptr, "most MiB of tensors that travel as one batch"},
    {"cycle_time_ms", "--cycle-time-ms", "", number, at_least_0, "HOROVOD_CYCLE_TIME", as_given, nullptr, "params.cycle_time_ms", nullptr, "no effect: a ready tensor never waits for a clock"},
    {"cache_capacity", "--cache-capacity", "", integer, at_least_0, "HOROVOD_CACHE_CAPACITY", as_given, nullptr, "params.cache_capacity", nullptr, "operations whose agreement is remembered"},
    {"hierarchical_allreduce", "--hierarchical-allreduce", "--no-hierarchical-allreduce", tristate, any, "HOROVOD_HIERARCHICAL_ALLREDUCE", as_flag, nullptr, "params.hierarchical_allreduce", nullptr, "no effect: the way through the nodes is chosen by cost (HOROVOD_ALGORITHM overrides it)"},
    {"hierarchical_allgather", "--hierarchical-allgather", "--no-hierarchical-allgather", tristate, any, "HOROVOD_HIERARCHICAL_ALLGATHER", as_flag, nullptr, "params.hierarchical_allgather", nullptr, "no effect: the way through the nodes is chosen by cost (HOROVOD_ALGORITHM overrides it)"},
    {"torus_allreduce", "--torus-allreduce", "--no-torus-allreduce", tristate, any, "HOROVOD_TORUS_ALLREDUCE", as_flag, nullptr, "params.torus_allreduce", nullptr, "no effect: the way through the nodes is chosen by cost (HOROVOD_ALGORITHM overrides it)"},
    {"autotune", "--autotune", "--no-autotune", tristate, any, "HOROVOD_AUTOTUNE", when_true, nullptr, "autotune.enabled", nullptr, "no effect in this version, which measures nothing: search the best settings while training"},
    {"autotune_log_file", "--autotune-log-file", "", text, any, "HOROVOD_AUTOTUNE_LOG", as_given, "autotune", "autotune.log_file", nullptr, "no effect in this version (see --autotune): CSV file for what autotuning tried"},
    {"autotune_warmup_samples", "--autotune-warmup-samples", "", integer, at_least_0, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", as_given, "autotune", "autotune.warmup_samples", nullptr, "no effect in this version (see --autotune): first samples to drop"},
    {"autotune_steps_per_sample", "--autotune-steps-per-sample", "", integer, at_least_0, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", as_given, "autotune", "autotune.steps_per_sample", nullptr, "no effect in this version (see --autotune): steps of one sample"},
    {"autotune_bayes_opt_max_samples", "--autotune-bayes-opt-max-samples", "", integer, at_least_0, "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", as_given, "autotune", "autotune.bayes_opt_max_samples", nullptr, "no effect in this version (see --autotune): samples after which autotuning settles"},
    {"autotune_gaussian_process_noise", "--autotune-gaussian-process-noise", "", number, zero_to_1, "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", as_given, "autotune", "autotune.gaussian_process_noise", nullptr, "no effect in this version (see --autotune): noise assumed, from 0 to 1"},
    {"timeline_filename", "--timeline-filename", "", text, any, "HOROVOD_TIMELINE", as_given, nullptr, "timeline.filename", nullptr, "no effect in this version, which writes none: file for the timeline of operations"},
    {"timeline_mark_cycles", "--timeline-mark-cycles", "--no-timeline-mark-cycles", tristate, any, "HOROVOD_TIMELINE_MARK_CYCLES", as_flag, "timeline_filename", "timeline.mark_cycles", nullptr, "no effect in this version, which writes no timeline: mark cycles in it"},
    {"no_stall_check", "--no-stall-check", "--stall-check", tristate, any, "HOROVOD_STALL_CHECK_DISABLE", as_flag, nullptr, "stall_check.enabled", nullptr, "do not report tensors that some ranks never submit"},
    {"stall_check_warning_time_seconds", "--stall-check-warning-time-seconds", "", integer, at_least_0, "HOROVOD_STALL_CHECK_TIME_SECONDS", as_given, nullptr, "stall_check.warning_time_seconds", nullptr, "seconds after which a tensor is reported"},
    {"stall_check_shutdown_time_seconds", "--stall-check-shutdown-time-seconds", "", integer, at_least_0, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", as_given, nullptr, "stall_check.shutdown_time_seconds", nullptr, "seconds after which the job is ended; 0: never"},
    {"mpi_threads_disable", "--mpi-threads-disable", "--no-mpi-threads-disable", tristate, any, "HOROVOD_MPI_THREADS_DISABLE", as_flag, nullptr, "library_options.mpi_threads_disable", nullptr, "ask MPI for no threads"},
    {"num_nccl_streams", "--num-nccl-streams", "", integer, at_least_0, "HOROVOD_NUM_NCCL_STREAMS", as_given, nullptr, "library_options.num_nccl_streams", nullptr, "no effect in this version, which uses no NCCL: streams that NCCL runs on"},
    {"thread_affinity", "--thread-affinity", "", integer, at_least_0, "HOROVOD_THREAD_AFFINITY", as_given, nullptr, "library_options.thread_affinity", nullptr, "no effect in this version: core of the background thread, which stays on the cores of its rank"},
    {"gloo_timeout_seconds", "--gloo-timeout-seconds", "", integer, at_least_0, "HOROVOD_GLOO_TIMEOUT_SECONDS", as_given, nullptr, "library_options.gloo_timeout_seconds", nullptr, "no effect: there is no Gloo here (see --start-timeout)"},
    {"log_level", "--log-level", "", level, any, "HOROVOD_LOG_LEVEL", as_given, nullptr, "logging.level", nullptr, "TRACE, DEBUG, INFO, WARNING, ERROR or FATAL"},
    {"log_with_timestamp", "--log-with-timestamp --no-log-hide-timestamp", "--log-without-timestamp --log-hide-timestamp", tristate, any, "HOROVOD_LOG_HIDE_TIME", inverted_flag, nullptr, "logging.with_timestamp", nullptr, "show the time in messages"},

    {"tcp_flag", "--tcp", "", toggle, any, "NCCL_IB_DISABLE", when_true, nullptr, nullptr, nullptr, "no InfiniBand for an NCCL of the program's own; Horovod uses none in this version"},
    {"use_gloo", "--gloo", "", toggle, any, nullptr, as_given, nullptr, nullptr, nullptr, "start the ranks by ourselves: on this machine, on other hosts over ssh"},
    {"use_mpi", "--mpi", "", toggle, any, nullptr, as_given, nullptr, nullptr, nullptr, "start the ranks through the mpiexec that is there"},
    {"use_jsrun", "--jsrun", "", toggle, any, nullptr, as_given, nullptr, nullptr, nullptr, "start the ranks through jsrun"},
    {"mpi_args", "--mpi-args", "", text, any, nullptr, as_given, nullptr, nullptr, nullptr, "--mpi: more arguments for the launcher"},
    {"binding_args", "--binding-args", "", text, any, nullptr, as_given, nullptr, nullptr, nullptr, "--mpi: binding arguments for the launcher, instead of none"},
    {"host_discovery_script", "--host-discovery-script", "", text, any, nullptr, as_given, nullptr, nullptr, elastic, "script that prints the hosts of an elastic job"},
    {"min_num_proc", "--min-np --min-num-proc", "", integer, at_least_1, nullptr, as_given, nullptr, nullptr, elastic, "least number of ranks of an elastic job"},
    {"max_num_proc", "--max-np --max-num-proc", "", integer, at_least_1, nullptr, as_given, nullptr, nullptr, elastic, "greatest number of ranks of an elastic job"},
    {"slots", "--slots-per-host", "", integer, at_least_1, nullptr, as_given, nullptr, nullptr, elastic, "slots of discovered hosts"},
    {"elastic_timeout", "--elastic-timeout", "", integer, at_least_0, nullptr, as_given, nullptr, nullptr, elastic, "seconds to wait for slots"},
    {"reset_limit", "--reset-limit", "", integer, at_least_0, nullptr, as_given, nullptr, nullptr, elastic, "resets after which an elastic job ends"},
    {"cooldown_range", "--blacklist-cooldown-range", "", pair, at_least_0, nullptr, as_given, nullptr, nullptr, elastic, "seconds that a failed host stays out"},
};
// clang-format on

}  // namespace

std::span<const FlagRow> flag_rows() {
  return rows;
}

}  // namespace hvd::launcher
