#pragma once
// Processes around this one: finds those below it through /proc, adopts orphans, and signals a process without hitting
// a stranger that got a recycled number.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace hvd::posix {

// Opens /dev/null for each of the three standard descriptors that this process was started without. Otherwise the next
// file that is opened would become standard input or output, and what is then done to these would be done to that file.
// Call it first.
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
// The same for kernels (before 5.9) that cannot do it at once.
void close_descriptors_one_by_one(unsigned first, unsigned last);

// From now on orphaned descendants of this process become its children, so that nothing below it can hide.
Status become_subreaper();

// The kernel sends `signal` to this process when its parent ends. Cleared by fork. False if the parent has ended
// already.
bool die_with_parent(int signal, pid_t expected_parent);

// Nothing if there is no such process, or if it is hidden from this user.
std::optional<pid_t> parent_of(pid_t process);

// When the process began, in ticks of the kernel: number and time together name one process, as long as the machine
// runs. Nothing if there is no such process, or if /proc has other process numbers than this process.
std::optional<std::uint64_t> began_at(pid_t process);
// Equal for processes whose numbers belong to the same space (a PID namespace of the machine since its start).
std::string process_space();

struct Descendant {
  pid_t process = 0;
  pid_t parent = 0;
  pid_t group = 0;
};
// All descendants of `ancestor`, in no particular order. Zombies are among them, since a process whose first thread has
// ended looks like one while its other threads run. It is a snapshot: what is forked meanwhile is missing, so repeat
// it.
std::vector<Descendant> descendants_of(pid_t ancestor);

// Signals exactly that process: nothing happens if it has ended and its number belongs to another by now.
void signal_descendant(const Descendant& descendant, int signal);

// True while this process has children at all, zombies included. A subreaper without children has no descendants.
bool has_children();

// Where `program` lies, as execvp would find it along `path`. The error's message says what is wrong; `exit_code` gets
// the shell's convention: 127 not found, 126 found but not executable.
Result<std::string> find_program(const std::string& program, const std::string& path, int& exit_code);

}  // namespace hvd::posix
