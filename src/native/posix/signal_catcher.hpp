#pragma once
// Signals of this process that somebody here wants to hear of, without taking them from the program: one that the
// program handles, or was started to ignore, stays as it is.
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace hvd::posix {

// "USR1", "SIGUSR1", "10"
std::optional<int> signal_of_name(std::string_view name);
// One whose sender wants the process to end: SIGTERM, SIGINT, SIGHUP, SIGQUIT.
bool asks_for_the_end(int signal);

// One for all of the process; nothing is ever undone, since a handler that was put in front of another's cannot go.
class SignalCatcher {
 public:
  // Catches those of them that end the process now. The result is the ones that it did not take: the program has a
  // handler for them, or ignores them.
  static std::vector<int> take(const std::vector<int>& signals);
  // Whether anybody would act on a signal. While nobody would, and in forked children, a signal ends the process as it
  // would without this. So does the second one that asks for the end, a while after the first.
  static void set_listening(bool is_listening);

  // For one thread: sleeps until a signal comes, poke() is called, or the time has passed; it may return without a
  // cause.
  static void wait(std::chrono::nanoseconds longest);
  static std::optional<int> next();  // each once, until it is taken
  static void poke();
};

}  // namespace hvd::posix
