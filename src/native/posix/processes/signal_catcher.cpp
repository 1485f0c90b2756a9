#include "native/posix/processes/signal_catcher.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>

#include "base/text/number.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "native/posix/processes/signals.hpp"

namespace hvd::posix {
namespace {

constexpr int most_signals = 64;
// A second signal within this time counts as the same one, because launcher and scheduler often both pass it on.
constexpr std::int64_t seconds_to_be_another = 5;
constexpr std::array enders = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

// What the children that the rank forks have to know later: it is in memory that they share with the rank.
struct OfRank {
  std::atomic<bool> is_heard{false};
  std::atomic<std::int64_t> first_end{0};  // the time in seconds of the first signal that asked for the end; 0: there
                                           // was none
};

// The handler uses these variables. They are initialised before any handler is installed, and never destroyed.
OfRank own_state;  // of a process that is no rank, and if no memory can be shared
std::atomic<OfRank*> of_rank{&own_state};
std::atomic<std::uint64_t> caught{0};
std::atomic<pid_t> owner{0};                          // the rank: the process that took the signals
std::atomic<pid_t> this_process{0}, forked_by{0};     // this process, and the process that forked it
std::atomic<pid_t> second_maker{0};                   // a process whose signals are those of a parent, too; 0: none
struct sigaction actions_before[most_signals];        // what was installed when a signal was taken
std::atomic<const void*> of_libraries[most_signals];  // handlers that libraries have installed for themselves

WaitWord& word() {
  static WaitWord instance;
  return instance;
}

std::int64_t seconds_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + 1;  // the time, but never 0
}

// Null if no function is called. SIG_DFL and SIG_IGN may come with any flags.
const void* function_of(const struct sigaction& action) {
  if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) return nullptr;
  return reinterpret_cast<const void*>(action.sa_handler);  // the same field as sa_sigaction
}

// The functions below are called by the handler. They use only what POSIX allows there: atomics, clock_gettime, getpid,
// getppid, kill, sigaction, raise, and a futex by syscall.

// Returns false if nothing was installed when the signal was taken.
bool call_earlier(int signal, siginfo_t* info, void* context) {
  const struct sigaction& it = actions_before[signal - 1];
  if (function_of(it) == nullptr) return false;
  if ((it.sa_flags & SA_SIGINFO) != 0) it.sa_sigaction(signal, info, context);
  else it.sa_handler(signal);
  return true;
}

void do_as_before(int signal, siginfo_t* info, void* context) {
  if (call_earlier(signal, info, context)) return;
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  ::raise(signal);  // the signal that was raised is delivered when the handler returns
}

// A signal that only warns is taken even if nobody acts on it now: after the training's end there is nothing to stop,
// and a training that begins later learns of it.
void in_rank(int signal, siginfo_t* info, void* context) {
  if (asks_for_the_end(signal)) {
    OfRank& rank = *of_rank.load();
    const std::int64_t now = seconds_now();
    std::int64_t none = 0;
    if (!rank.is_heard.load() ||
        !(rank.first_end.compare_exchange_strong(none, now) || now - none < seconds_to_be_another))
      return do_as_before(signal, info, context);
  }
  caught.fetch_or(std::uint64_t{1} << (signal - 1));
  word().post();
  if (!asks_for_the_end(signal)) call_earlier(signal, info, context);
}

// True if the rank does not survive this signal, so that nothing spares its children.
bool is_the_end_of_the_rank(int signal) {
  const OfRank& rank = *of_rank.load();
  const std::int64_t first_end = rank.first_end.load();
  return asks_for_the_end(signal) &&
         (!rank.is_heard.load() || (first_end != 0 && seconds_now() - first_end >= seconds_to_be_another));
}

// A signal from another process than the parent is meant for the rank, and was sent to all processes of a group, job
// step or container. `info` is null if the sender is not known.
bool is_meant_for_the_rank(int signal, const siginfo_t* info) {
  if (info == nullptr) return !asks_for_the_end(signal);
  const pid_t me = ::getpid();
  // A child that was made without the C library's fork() has not noted who made it.
  const pid_t maker = this_process.load() == me ? forked_by.load() : this_process.load();
  const bool is_sent =
      info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL || info->si_code == SI_KERNEL;
  if (!is_sent) return false;  // it comes from a timer or file of this process
  const pid_t sender = info->si_code == SI_KERNEL ? 0 : info->si_pid;
  const pid_t rank = owner.load(), second = second_maker.load();
  if (sender == me || sender == maker || (sender != 0 && sender == second)) return false;
  const bool is_orphan =
      (second == 0 ? ::getppid() != maker : ::kill(second, 0) != 0) || (rank != 0 && ::kill(rank, 0) != 0);
  return !is_orphan && !is_the_end_of_the_rank(signal);
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const int before = errno;
  // A handler that was installed over this one may call it, as one without these arguments.
  struct sigaction current {};
  ::sigaction(signal, nullptr, &current);
  if (function_of(current) != reinterpret_cast<const void*>(&on_signal)) info = nullptr, context = nullptr;
  if (owner.load() == ::getpid()) in_rank(signal, info, context);
  else if (!is_meant_for_the_rank(signal, info)) do_as_before(signal, info, context);
  errno = before;
}

void note_forks() {
  static const int noted = ::pthread_atfork(nullptr, nullptr, [] {
    forked_by.store(this_process.load());
    this_process.store(::getpid());
    second_maker.store(0);
  });
  (void)noted;
}

bool install_ours(int signal, const struct sigaction& current) {
  actions_before[signal - 1] = current;
  struct sigaction ours {};
  ours.sa_sigaction = &on_signal;
  ours.sa_flags = SA_RESTART | SA_SIGINFO;
  return ::sigaction(signal, &ours, nullptr) == 0;
}

bool is_ours(const struct sigaction& action) {
  return function_of(action) == reinterpret_cast<const void*>(&on_signal);
}

bool is_default(const struct sigaction& action) {
  return action.sa_handler == SIG_DFL;
}

// True if a library, and not the program, has installed the handler.
bool is_of_a_library(int signal, const struct sigaction& action) {
  const void* function = function_of(action);
  return function != nullptr && of_libraries[signal - 1].load() == function;
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
  (void)word();
  if (const pid_t me = ::getpid(); owner.load() != me) {
    void* shared = ::mmap(nullptr, sizeof(OfRank), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    OfRank* rank = shared == MAP_FAILED ? &own_state : new (shared) OfRank;
    rank->is_heard.store(of_rank.load()->is_heard.load());
    of_rank.store(rank);
    this_process.store(me);
    owner.store(me);
    note_forks();
  }
  std::vector<int> left;
  for (int signal : signals) {
    struct sigaction current {};
    const bool can_be_read = ::sigaction(signal, nullptr, &current) == 0;
    if (can_be_read && is_ours(current)) continue;
    const bool is_free = can_be_read && (is_default(current) || is_of_a_library(signal, current));
    if (!is_free || !install_ours(signal, current)) left.push_back(signal);
  }
  return left;
}

void SignalCatcher::shelter_child(const std::vector<int>& signals, pid_t parent_of_it) {
  const pid_t me = ::getpid();
  if (owner.load() == me) return;
  if (this_process.load() != me) {
    this_process.store(me);
    forked_by.store(::getppid());
    if (owner.load() == 0) own_state.is_heard.store(true);  // the rank is not known, so it may listen
    note_forks();
  }
  if (parent_of_it != ::getppid()) second_maker.store(parent_of_it);
  for (int signal : signals) {
    struct sigaction current {};
    if (::sigaction(signal, nullptr, &current) != 0 || is_ours(current)) continue;
    if (is_default(current) || (asks_for_the_end(signal) && function_of(current) != nullptr))
      install_ours(signal, current);
  }
}

void SignalCatcher::set_listening(bool is_listening) {
  of_rank.load()->is_heard.store(is_listening);
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

LibraryStart::LibraryStart() {
  for (int signal = 1; signal <= most_signals; ++signal) {
    struct sigaction current {};
    had_handler_[signal - 1] = ::sigaction(signal, nullptr, &current) != 0 || !is_default(current);
  }
}

LibraryStart::~LibraryStart() {
  for (int signal = 1; signal <= most_signals; ++signal) {
    struct sigaction current {};
    if (!had_handler_[signal - 1] && ::sigaction(signal, nullptr, &current) == 0)
      of_libraries[signal - 1].store(function_of(current));
  }
}

void note_handlers_in_library_of(const void* address) {
  Dl_info library{}, found{};
  if (::dladdr(address, &library) == 0) return;
  for (int signal = 1; signal <= most_signals; ++signal) {
    struct sigaction current {};
    const void* function = ::sigaction(signal, nullptr, &current) == 0 ? function_of(current) : nullptr;
    if (function != nullptr && ::dladdr(function, &found) != 0 && found.dli_fbase == library.dli_fbase)
      of_libraries[signal - 1].store(function);
  }
}

}  // namespace hvd::posix
