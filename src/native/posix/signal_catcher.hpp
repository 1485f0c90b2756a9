#pragma once
// Catches signals of this process for the runtime, without taking them from the program. A signal that the program
// handles, or that was ignored when the process was started, stays as it is.
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
  // Catches those of the signals that would end the process. Returns the others: the program handles or ignores
  // them.
  static std::vector<int> take(const std::vector<int>& signals);
  // Tells the catcher whether somebody acts on caught signals. If nobody does, or in a forked child, a signal ends the
  // process as usual. A second signal that asks for the end also ends the process, if it comes a while after the first.
  static void set_listening(bool is_listening);

  // Used by one thread. Sleeps until a signal comes, poke() is called, or the time has passed. It may also return
  // earlier.
  static void wait(std::chrono::nanoseconds longest);
  static std::optional<int> next();  // returns each caught signal once
  static void poke();
};

}  // namespace hvd::posix
