#pragma once
// Processes around this one. These functions find the processes below it through /proc, adopt orphans, and signal a
// process without hitting another one that got its number later.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"

namespace hvd::posix {

// Opens /dev/null for each of the three standard descriptors that this process was started without. Otherwise the next
// file that is opened would become standard input or output, and would be read or written by mistake. Call this first.
void fill_standard_descriptors();

// The number of files that a process may have open (ulimit -n). `soft` may be raised up to `hard`.
struct DescriptorLimit {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
};
DescriptorLimit descriptor_limit();
void set_descriptor_limit(const DescriptorLimit& limit);

// Closes all descriptors from first to last.
void close_descriptors(unsigned first, unsigned last);
// Closes the same descriptors one by one, for kernels (before 5.9) that cannot close them all at once.
void close_descriptors_one_by_one(unsigned first, unsigned last);

// From now on orphaned descendants of this process become its children, so that nothing below it can hide.
Status become_subreaper();

// The kernel sends `signal` to this process when its parent ends. A fork clears this setting. False if the parent has
// ended already.
bool die_with_parent(int signal, pid_t expected_parent);

// Returns nullopt if there is no such process, or if it is hidden from this user.
std::optional<pid_t> parent_of(pid_t process);

// Returns when the process began, in ticks of the kernel. Number and time together name one process, as long as the
// machine runs. Returns nullopt if there is no such process, or if /proc shows other process numbers than those of this
// process.
std::optional<std::uint64_t> began_at(pid_t process);
// True if the process has ended with all its threads, and its parent has not asked for its exit status yet.
bool is_zombie(pid_t process);
// Returns the seconds since this process was forked, which an exec does not change; 0 if they are not known. Exact to a
// hundredth.
double age_of_this_process();
// Returns a text that is equal for processes whose numbers belong to the same space (a PID namespace of the machine
// since its start).
std::string process_space();

struct Descendant {
  pid_t process = 0;
  pid_t parent = 0;
  pid_t group = 0;
};
// Returns all descendants of `ancestor`, in no particular order. They include zombies, because a process whose first
// thread has ended looks like a zombie while its other threads run. The list is a snapshot without processes that are
// forked meanwhile, so repeat the call.
std::vector<Descendant> descendants_of(pid_t ancestor);

// True if a thread of the process has this name (as in native/posix/processes/thread.hpp). A forked child does not have
// the threads of its parent.
bool has_thread(pid_t process, std::string_view name);

// Signals exactly this process. Does nothing if it has ended and its number belongs to another process by now.
void signal_descendant(const Descendant& descendant, int signal);

// True while this process has any children, zombies included. A subreaper without children has no descendants.
bool has_children();

// Returns the path of `program` as execvp would find it along `path`. The error's message says what is wrong.
// `exit_code` gets the code that a shell would give: 127 not found, 126 found but not executable.
Result<std::string> find_program(const std::string& program, const std::string& path, int& exit_code);
// Returns the folders in which programs are looked for: PATH, or the usual ones where it is not set.
std::string search_path(const Environment& environment);

}  // namespace hvd::posix
