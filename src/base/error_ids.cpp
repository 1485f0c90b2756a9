#include "base/error_ids.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace hvd {
namespace {

constexpr ErrorSection sections_of_errors[] = {
    {"HVD1001", "The launcher"}, {"HVD1201", "Ends of ranks"}, {"HVD2001", "Start of the ranks"},
    {"HVD2101", "Operations"},   {"HVD3001", "Checkpoints"},
};

// docs/errors writes docs/errors.md from this table.
constexpr ErrorRow error_table[] = {
    {"HVD1001", "wrong flags",
     "A flag is unknown, malformed, out of range, or contradicts another one. The message names the flag and the "
     "nearest known one. `horovodrun --help` lists all; flags of the command itself come after the command."},
    {"HVD1002", "faulty file of --config-file",
     "The file cannot be read, is not YAML with sections of `key: value` lines, or has a value that its key does not "
     "accept. The message names the line. Correct it, or leave the flag out."},
    {"HVD1003", "faulty file of settings",
     "The site's or the user's file of settings cannot be read or understood. The message names the file, the line, "
     "what was expected and what was found. If it is the site's file, tell the administrator; with "
     "`HOROVOD_SITE_CONFIG=none` the job starts without it. See docs/configuration.md."},
    {"HVD1004", "locked setting",
     "A flag, a variable or a file sets what the site has locked. Leave it out, or ask the contact that the "
     "message names. `horovodrun --show-config` shows what is locked and where each value comes from."},
    {"HVD1005", "no plan for the job",
     "The number of ranks, the hosts, the command and the launcher do not fit together, or they do not fit the "
     "scheduler's job. For example, `-np` is missing, there are too few slots, a host file is wrong, or the launcher "
     "is not installed. `horovodrun --explain` with the same flags shows what was found."},
    {"HVD1006", "command not found",
     "The command of the ranks does not exist along PATH, or cannot be executed. Check its spelling, the "
     "loaded modules or environment, and the file's permissions."},
    {"HVD1007", "image that cannot be used",
     "The image of `--container` does not exist, no runtime here can run it, or it has another Horovod. The message "
     "says what was expected. See docs/containers.md."},
    // HVD1008 was the id of another error once.
    {"HVD1009", "job script that cannot be written",
     "`--jobscript` lacks something that the site demands, or has a value that the site does not accept. The message "
     "names it."},
    {"HVD1010", "support bundle that cannot be written",
     "The archive cannot be written there, or `tar` is missing. Name another file: `--support-bundle=FILE`."},
    {"HVD1011", "build that is not available",
     "A variable of the environment asks the build for something that this version does not have, such as "
     "HOROVOD_WITH_MXNET=1 or HOROVOD_GPU_OPERATIONS=MPI, or has a value other than 0 and 1. Unset it. "
     "docs/migration.md describes each variable."},
    {"HVD1012", "environment that cannot be staged",
     "The archive of `--stage` is missing, is not a complete tar archive, would be unpacked outside its folder, "
     "contains no environment, or does not fit on a node. The message names the node and says what was found; see "
     "docs/launching.md."},
    {"HVD1201", "a rank failed",
     "A rank ended with a code other than 0, and the others were ended because of it. The output of this rank "
     "has the cause, often a traceback just above; the errors of other ranks are consequences."},
    {"HVD1202", "a rank was killed",
     "A signal ended a rank: a crash (SIGSEGV, SIGBUS, SIGILL), the out-of-memory killer or somebody (SIGKILL). "
     "The block names the likely reason. If memory ran out, use fewer ranks per node, smaller batches, fewer "
     "loader workers, or more memory for the job."},
    {"HVD1203", "a rank was not started",
     "The command of a rank could not be executed on its host. Horovod, the command and its environment must be at "
     "the same place on every host, or HOROVOD_REMOTE_PROGRAM must name it."},
    {"HVD1204", "a host was lost",
     "A host stopped answering, or its agent ended. Look at the node's state in the scheduler and at its kernel's "
     "messages; start again without it."},
    {"HVD1205", "a rank ended the job",
     "A rank asked for the end of the job, because an operation failed or stalled. The block has the reason, and "
     "its id if it has one."},
    {"HVD2001", "the start failed",
     "The ranks could not join the job or reach each other. The message names what was tried. Compare with "
     "`horovodrun --explain`; HOROVOD_LOG_LEVEL=debug prints each step."},
    {"HVD2002", "alone among several",
     "The process was started as one of several, but found none of the others, so each would train alone. Use the "
     "flag that the message names, such as `srun --mpi=pmix`, or pass the launcher's variables on to the process."},
    {"HVD2003", "some ranks did not come in time",
     "Some ranks did not come to the meeting within HOROVOD_START_TIMEOUT seconds. They still import modules, hang, "
     "have ended, or were started in another way. The message names them. Raise the limit if imports are slow."},
    {"HVD2004", "Horovod is not started",
     "A function that needs the job was called before `hvd.init()` (in C: `hvd_init`) or after "
     "`hvd.shutdown()`."},
    {"HVD2101", "the ranks disagree",
     "Ranks submitted different operations, shapes, types or settings under one name. Let all ranks run the same "
     "code with the same settings; the message names the ranks and their values."},
    {"HVD2102", "a rank was lost",
     "A rank ended or cannot be reached while others need it. Look for the first failure: the launcher's block, or "
     "the rank's own output."},
    {"HVD2103", "an operation took too long",
     "A step that all ranks take part in did not end in time. The message names the ranks that did not "
     "answer, and the setting of the limit."},
    {"HVD2104", "a stream that cannot wait",
     "The operation is done, but the stream that should wait for its result is being captured into a graph. The "
     "handle stays: wait for it before the capture begins, or after its end."},
    {"HVD2105", "a name that is in flight",
     "An operation was started under a name whose last use has not ended on this rank. Wait for it, or give "
     "the new operation another name."},
    {"HVD2106", "wrong arguments",
     "An argument of one call is wrong, whatever the other ranks do. The message names the argument, what was "
     "expected and what was found."},
    {"HVD2107", "the job has ended",
     "The operation cannot be carried out, because Horovod was shut down: by this rank, by another rank that called "
     "hvd.shutdown() or ended, or because the program ended MPI. If ranks take different numbers of steps, see "
     "`hvd.join()`."},
    {"HVD2108", "not possible here",
     "This build does not have what was asked for, or it is not possible with this library, this kind of memory or "
     "this machine. The message names what would make it possible."},
    {"HVD2109", "no memory",
     "There was not enough memory for the operation, or a limit on it was reached. The message names the "
     "amount and, if a limit was reached, the limit."},
    {"HVD2110", "the system refused",
     "The operating system or a library refused a call. The message names the call and the reason."},
    {"HVD2111", "a process set of ranks that are not there",
     "The ranks of a process set must be ranks of the job, each named once. In an elastic job, the sets of hvd.init() "
     "may have only ranks below `--min-np`: raise `--min-np`."},
    {"HVD2201", "missing ranks",
     "Some ranks do not submit an operation that others wait for. They run different code, have another number of "
     "batches, swallowed an exception, or hang. See docs/troubleshooting.md; HOROVOD_STALL_SHUTDOWN_TIME_SECONDS ends "
     "such jobs."},
    {"HVD3001", "checkpoint that cannot be written",
     "The state could not be saved: no space, no permission, another job has the lease of the path, or no HDF5 "
     "library. The previous generation is untouched."},
    {"HVD3002", "checkpoint that cannot be read",
     "There is no checkpoint at the path, or its checksum or form is wrong. `horovodrun --checkpoint verify PATH` "
     "names the fault; an older generation may be intact."},
};
static_assert(std::ranges::adjacent_find(error_table, std::ranges::greater_equal{},
                                         [](const ErrorRow& row) { return std::string_view(row.id); }) ==
                  std::end(error_table),
              "an id stands below the heading of its number, and for one error");

}  // namespace

std::string with_id(std::string message, std::string_view id) {
  return std::move(message) + " [" + std::string(id) + "]";
}

Error identified(Error error, std::string_view id) {
  if (error.id.empty()) error.id = id;
  return error;
}

std::string_view known_id(std::string_view text) {
  for (const ErrorRow& row : error_table)
    if (text == row.id) return row.id;
  return {};
}

std::span<const ErrorSection> error_sections() {
  return sections_of_errors;
}

std::span<const ErrorRow> error_rows() {
  return error_table;
}

}  // namespace hvd
