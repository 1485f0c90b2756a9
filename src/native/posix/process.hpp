#pragma once
// Processes around this one: finding those below it through /proc, adopting the orphaned ones, signalling them without
// hitting a stranger that got a recycled number.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace hvd::posix {

// Opens /dev/null for each of the standard three descriptors that this process was started without. Else the next file
// that is opened becomes standard input or output, and whatever is then done to these is done to that file. Call it
// first.
void fill_standard_descriptors();

// How many files a process may have open (ulimit -n). `soft` may be raised up to `hard`.
struct DescriptorLimit {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
};
DescriptorLimit descriptor_limit();
void set_descriptor_limit(const DescriptorLimit& limit);

// Closes all descriptors from first to last.
void close_descriptors(unsigned first, unsigned last);
// The same where the kernel (before 5.9) cannot do it at once.
void close_descriptors_one_by_one(unsigned first, unsigned last);

// Orphaned descendants of this process become its children from now on, so that nothing below it can hide.
Status become_subreaper();

// The kernel sends `signal` to this process when its parent ends. Cleared by fork. False if the parent has ended
// already.
bool die_with_parent(int signal, pid_t expected_parent);

// Nothing where there is no such process, or it is hidden from this user.
std::optional<pid_t> parent_of(pid_t process);

// When it began, in ticks of the kernel: with it a process number is that process's alone, as long as the machine runs.
// Nothing where there is no such process, or /proc counts processes otherwise than this process does.
std::optional<std::uint64_t> began_at(pid_t process);
// Equal for processes that have numbers of the same space (the machine since it was started, and a PID namespace of it).
std::string process_space();

struct Descendant {
  pid_t process = 0;
  pid_t parent = 0;
  pid_t group = 0;
};
// All descendants of `ancestor`, in no particular order; zombies too, since a process whose first thread has ended
// looks like one while its other threads run. A snapshot: what is forked meanwhile is missing, so repeat it.
std::vector<Descendant> descendants_of(pid_t ancestor);

// Signals that very process: nothing happens when it has ended and its number belongs to another one by now.
void signal_descendant(const Descendant& descendant, int signal);

// True while this process has children at all, zombies included. A subreaper without children has no descendants.
bool has_children();

// Where `program` lies, as execvp would find it along `path`. The error's message says what is wrong; `exit_code` gets
// the shell's convention: 127 not found, 126 found but not executable.
Result<std::string> find_program(const std::string& program, const std::string& path, int& exit_code);

}  // namespace hvd::posix
