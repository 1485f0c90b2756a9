#include "native/posix/signal_catcher.hpp"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

#include "base/number.hpp"
#include "native/posix/signals.hpp"
#include "native/posix/wait_word.hpp"

namespace hvd::posix {
namespace {

constexpr int most_signals = 64;
// A second signal within this time counts as the same one, because launcher and scheduler often both pass it on.
constexpr std::int64_t seconds_to_be_another = 5;
constexpr std::array enders = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

// The handler uses these variables. They are initialised before any handler is installed, and never destroyed.
std::atomic<std::uint64_t> caught{0};
std::atomic<std::int64_t> first_end{0};  // the time in seconds of the first signal that asked for the end; 0: there was
                                         // none
std::atomic<bool> is_heard{false};
std::atomic<pid_t> owner{0};
WaitWord& word() {
  static WaitWord instance;
  return instance;
}

std::int64_t seconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1;  // the time, but never 0
}

// The handler uses only what POSIX allows: atomics, clock_gettime, getpid, sigaction, raise, and a futex by syscall.
void on_signal(int signal) {
  const int before = errno;
  bool is_for_us = is_heard.load() && owner.load() == ::getpid();
  if (is_for_us && asks_for_the_end(signal)) {
    const std::int64_t now = seconds_now();
    std::int64_t none = 0;
    is_for_us = first_end.compare_exchange_strong(none, now) || now - none < seconds_to_be_another;
  }
  if (is_for_us) {
    caught.fetch_or(std::uint64_t{1} << (signal - 1));
    word().post();
  } else {
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(signal, &standard, nullptr);
    ::raise(signal);  // the signal that was raised is delivered when this handler returns
  }
  errno = before;
}

}  // namespace

std::optional<int> signal_of_name(std::string_view name) {
  if (auto number = number_in<int>(name))
    return *number > 0 && *number <= most_signals ? std::optional(*number) : std::nullopt;
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int signal = 1; signal < 32 && !name.empty(); ++signal)
    if (name_of_signal(signal) == "SIG" + std::string(name)) return signal;
  return std::nullopt;
}

bool asks_for_the_end(int signal) {
  return std::find(enders.begin(), enders.end(), signal) != enders.end();
}

std::vector<int> SignalCatcher::take(const std::vector<int>& signals) {
  owner.store(::getpid());
  (void)word();
  std::vector<int> left;
  for (int signal : signals) {
    struct sigaction current {};
    struct sigaction ours {};
    ours.sa_handler = &on_signal;
    ours.sa_flags = SA_RESTART;
    bool can_be_read = ::sigaction(signal, nullptr, &current) == 0;
    if (can_be_read && (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == &on_signal) continue;
    bool is_free = can_be_read && (current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == SIG_DFL;
    if (!is_free || ::sigaction(signal, &ours, nullptr) != 0) left.push_back(signal);
  }
  return left;
}

void SignalCatcher::set_listening(bool is_listening) {
  is_heard.store(is_listening);
}

void SignalCatcher::wait(std::chrono::nanoseconds longest) {
  std::uint32_t announced = word().announce();
  if (caught.load() != 0) return word().retract();
  word().sleep(announced, longest);
}

std::optional<int> SignalCatcher::next() {
  const std::uint64_t all = caught.load();
  for (int signal = 1; signal <= most_signals; ++signal) {
    const std::uint64_t bit = std::uint64_t{1} << (signal - 1);
    if ((all & bit) == 0) continue;
    caught.fetch_and(~bit);
    return signal;
  }
  return std::nullopt;
}

void SignalCatcher::poke() {
  word().post();
}

}  // namespace hvd::posix
