#include "native/posix/processes/signals.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace hvd::posix {

Result<SignalReader> SignalReader::open(std::initializer_list<int> signals, ChildNews news) {
  SignalReader reader;
  sigset_t wanted;
  sigemptyset(&wanted);
  for (int signal : signals) {
    struct sigaction current {};
    // A signal that was ignored when this process was started (nohup) stays ignored. If it were blocked, it would be
    // read in spite of that.
    if (::sigaction(signal, nullptr, &current) == 0 && current.sa_handler == SIG_IGN && signal != SIGCHLD) continue;
    sigaddset(&wanted, signal);
  }
  if (sigismember(&wanted, SIGCHLD) == 1) {
    // If this setting were inherited as "ignore", the kernel would reap our children.
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    action.sa_flags = news == ChildNews::ends ? SA_NOCLDSTOP : 0;
    ::sigaction(SIGCHLD, &action, nullptr);
  }
  if (int failed = ::pthread_sigmask(SIG_BLOCK, &wanted, &reader.previous_mask_); failed != 0)
    return system_error("cannot receive signals (pthread_sigmask)", failed);
  reader.descriptor_ = FileDescriptor(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!reader.descriptor_) return system_error("cannot receive signals (signalfd)", errno);
  return reader;
}

SignalReader::~SignalReader() {
  if (descriptor_) ::pthread_sigmask(SIG_SETMASK, &previous_mask_, nullptr);
}

std::optional<SignalEvent> SignalReader::next() {
  signalfd_siginfo info{};
  if (::read(descriptor_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return std::nullopt;
  return SignalEvent{static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid)};
}

SignalState SignalState::of_this_process() {
  SignalState state;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &state.mask);
  auto is_ignored = [](int signal) {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  };
  state.pipe_ignored = is_ignored(SIGPIPE);
  state.file_size_ignored = is_ignored(SIGXFSZ);
  return state;
}

void restore_signals(const SignalState& before) {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  if (!before.pipe_ignored) ::sigaction(SIGPIPE, &standard, nullptr);
  if (!before.file_size_ignored) ::sigaction(SIGXFSZ, &standard, nullptr);
  ::sigaction(SIGCHLD, &standard, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before.mask, nullptr);
}

void end_by_signal(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  ::raise(signal);
}

std::string name_of_signal(int signal) {
  // glibc has sigabbrev_np only since 2.32.
#define HVD_SIGNAL(name) \
  case name: return #name;
  switch (signal) {
    HVD_SIGNAL(SIGHUP)
    HVD_SIGNAL(SIGINT)
    HVD_SIGNAL(SIGQUIT)
    HVD_SIGNAL(SIGILL)
    HVD_SIGNAL(SIGTRAP)
    HVD_SIGNAL(SIGABRT)
    HVD_SIGNAL(SIGBUS)
    HVD_SIGNAL(SIGFPE)
    HVD_SIGNAL(SIGKILL)
    HVD_SIGNAL(SIGUSR1)
    HVD_SIGNAL(SIGSEGV)
    HVD_SIGNAL(SIGUSR2)
    HVD_SIGNAL(SIGPIPE)
    HVD_SIGNAL(SIGALRM)
    HVD_SIGNAL(SIGTERM)
    HVD_SIGNAL(SIGSTKFLT)
    HVD_SIGNAL(SIGCHLD)
    HVD_SIGNAL(SIGCONT)
    HVD_SIGNAL(SIGSTOP)
    HVD_SIGNAL(SIGTSTP)
    HVD_SIGNAL(SIGTTIN)
    HVD_SIGNAL(SIGTTOU)
    HVD_SIGNAL(SIGURG)
    HVD_SIGNAL(SIGXCPU)
    HVD_SIGNAL(SIGXFSZ)
    HVD_SIGNAL(SIGVTALRM)
    HVD_SIGNAL(SIGPROF)
    HVD_SIGNAL(SIGWINCH)
    HVD_SIGNAL(SIGPOLL)
    HVD_SIGNAL(SIGPWR)
    HVD_SIGNAL(SIGSYS)
  }
#undef HVD_SIGNAL
  return "signal " + std::to_string(signal);
}

}  // namespace hvd::posix
