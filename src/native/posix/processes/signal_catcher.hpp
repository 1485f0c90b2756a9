#pragma once
// Catches signals of this process for the runtime, without taking them from the program. A signal that the program
// handles, or that was ignored when the process was started, stays as it is.
//
//  1. In the rank, the process that took the signals, a caught signal is passed to the runtime. If nobody acts on
//     signals now, one that asks for the end ends the process as usual. So does a second one, if it comes a while after
//     the first.
//  2. Launchers and schedulers often signal all processes of a rank. A child that was forked from the rank ignores such
//     a signal: it does to the child what it did before only if its parent sends it, or after the end of the parent or
//     of the rank. A program that a child executes has none of this, since exec removes handlers.
//  3. A handler that a library has installed for itself, as MPI_Init of MPICH does for SIGUSR1, does not make a signal
//     the program's. Such a handler is called after ours.
#include <sys/types.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hvd::posix {

// Reads "USR1", "SIGUSR1" or "10".
std::optional<int> signal_of_name(std::string_view name);
// True for a signal by which its sender asks the process to end: SIGTERM, SIGINT, SIGHUP, SIGQUIT.
bool asks_for_the_end(int signal);

// There is one for the process. It is never removed, because a handler that was installed over another one cannot be
// taken away safely.
class SignalCatcher {
 public:
  // Catches those of the signals that would end the process, or that a library handles. Returns the others: the
  // program handles or ignores them.
  static std::vector<int> take(const std::vector<int>& signals);
  // For a child of a rank that was executed anew, or that has installed handlers of its own over ours, as a data
  // loader's worker does: from now on it ignores these signals unless its parent sends them, like any forked child.
  // `parent` is its parent, or the process that acts as such (the parent of a process that a server forks). Does
  // nothing in a rank.
  static void shelter_child(const std::vector<int>& signals, pid_t parent);
  // Tells the catcher whether somebody acts on caught signals.
  static void set_listening(bool is_listening);

  // Used by one thread. Sleeps until a signal comes, poke() is called, or the time has passed. It may also return
  // earlier.
  static void wait(std::chrono::nanoseconds longest);
  static std::optional<int> next();  // returns each caught signal once
  static void poke();
};

// While an object of this class lives, a library is started. Handlers that are installed in this time, where there were
// none, are the library's.
class LibraryStart {
 public:
  LibraryStart();
  ~LibraryStart();
  LibraryStart(const LibraryStart&) = delete;
  LibraryStart& operator=(const LibraryStart&) = delete;

 private:
  std::array<bool, 64> had_handler_{};
};

// The handlers that are now installed and whose code is in the same shared object as the address are the library's.
void note_handlers_in_library_of(const void* address);

}  // namespace hvd::posix
