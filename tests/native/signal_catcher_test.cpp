#include "native/posix/processes/signal_catcher.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace hvd::posix {
namespace {

const std::vector<int> stop_signals = {SIGUSR1, SIGUSR2, SIGTERM};

// A forked process with a pipe in each direction.
struct Forked {
  pid_t process = 0;
  int to = -1, from = -1;

  explicit Forked(const std::function<void(const Forked& to_parent)>& body) {
    int down[2], up[2];
    if (::pipe(down) != 0 || ::pipe(up) != 0) ::_exit(90);
    process = ::fork();
    if (process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // ends it if the test fails early
      ::close(down[1]), ::close(up[0]);
      to = up[1], from = down[0];
      body(*this);
      ::_exit(0);
    }
    ::close(down[0]), ::close(up[1]);
    to = down[1], from = up[0];
  }
  void send(char letter = '.') const { (void)!::write(to, &letter, 1); }
  char receive() const {
    char letter = 0;
    return ::read(from, &letter, 1) == 1 ? letter : '-';
  }
  // A signal that was sent to the process earlier has had its effect when the answer comes.
  bool answers() const {
    send();
    return receive() == '.';
  }
  int end() const {
    int status = 0;
    ::waitpid(process, &status, 0);
    return status;
  }
};

void answer_for_ever(const Forked& parent) {
  for (;;) parent.send(parent.receive());
}

// Signals are a matter of the process, so each test runs in a process of its own. Returns its exit code.
int in_rank(const std::function<int()>& body) {
  const int status = Forked([&](const Forked&) { ::_exit(body()); }).end();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void signal_from_elsewhere(pid_t process, int signal) {
  Forked([&](const Forked&) { ::kill(process, signal); }).end();
}

TEST(SignalCatcher, stop_signals_of_others_do_nothing_to_forked_children) {
  EXPECT_EQ(0, in_rank([] {
              SignalCatcher::take(stop_signals);
              SignalCatcher::set_listening(true);
              Forked child(answer_for_ever);
              for (int signal : stop_signals) {
                signal_from_elsewhere(child.process, signal);
                if (!child.answers()) return signal;
              }
              return 0;
            }));
}

TEST(SignalCatcher, the_parent_ends_its_child_by_any_of_the_signals) {
  for (int signal : stop_signals)
    EXPECT_EQ(signal, in_rank([signal] {
                SignalCatcher::take(stop_signals);
                SignalCatcher::set_listening(true);
                Forked child(answer_for_ever);
                ::kill(child.process, signal);
                return WTERMSIG(child.end());
              }));
}

TEST(SignalCatcher, a_childs_own_child_is_ended_by_its_parent_alone) {
  EXPECT_EQ(SIGTERM, in_rank([] {
              SignalCatcher::take(stop_signals);
              SignalCatcher::set_listening(true);
              Forked child([](const Forked& parent) {
                Forked grandchild(answer_for_ever);
                signal_from_elsewhere(grandchild.process, SIGTERM);
                if (!grandchild.answers()) ::_exit(1);
                ::kill(grandchild.process, SIGTERM);
                parent.send(static_cast<char>(WTERMSIG(grandchild.end())));
              });
              return static_cast<int>(child.receive());
            }));
}

TEST(SignalCatcher, a_program_that_a_child_executes_is_ended_as_ever) {
  EXPECT_EQ(SIGUSR1, in_rank([] {
              SignalCatcher::take(stop_signals);
              SignalCatcher::set_listening(true);
              Forked child([](const Forked& parent) {
                ::dup2(parent.from, STDIN_FILENO);
                ::dup2(parent.to, STDOUT_FILENO);
                ::execl("/bin/cat", "cat", nullptr);
              });
              if (!child.answers()) return 1;
              signal_from_elsewhere(child.process, SIGUSR1);
              return WTERMSIG(child.end());
            }));
}

TEST(SignalCatcher, a_child_of_a_rank_that_has_ended_is_ended_by_any_process) {
  Forked rank([](const Forked& test) {
    SignalCatcher::take(stop_signals);
    SignalCatcher::set_listening(true);
    Forked child([&](const Forked& parent) {
      sigset_t end_of_parent;
      sigemptyset(&end_of_parent);
      sigaddset(&end_of_parent, SIGHUP);
      ::sigprocmask(SIG_BLOCK, &end_of_parent, nullptr);
      ::prctl(PR_SET_PDEATHSIG, SIGHUP);
      parent.send();
      int signal = 0;
      ::sigwait(&end_of_parent, &signal);
      signal_from_elsewhere(::getpid(), SIGTERM);
      test.send('!');
    });
    child.receive();
    ::_exit(0);
  });
  EXPECT_EQ(rank.receive(), '-') << "the child has survived";
  rank.end();
}

TEST(SignalCatcher, a_warning_that_nobody_acts_on_is_kept_and_ends_nothing) {
  EXPECT_EQ(SIGUSR1, in_rank([] {
              SignalCatcher::take(stop_signals);
              SignalCatcher::set_listening(true);
              SignalCatcher::set_listening(false);
              ::raise(SIGUSR1);
              return SignalCatcher::next().value_or(0);
            }));
}

TEST(SignalCatcher, a_request_to_end_that_nobody_acts_on_ends_rank_and_children) {
  EXPECT_EQ(128 + SIGTERM, in_rank([] {
              SignalCatcher::take(stop_signals);
              SignalCatcher::set_listening(true);
              Forked child(answer_for_ever);
              SignalCatcher::set_listening(false);
              signal_from_elsewhere(child.process, SIGTERM);
              if (WTERMSIG(child.end()) != SIGTERM) return 1;
              ::raise(SIGTERM);
              return 2;
            }));
}

volatile sig_atomic_t handled = 0;
void count(int) {
  handled = handled + 1;
}

TEST(SignalCatcher, a_handler_that_a_library_installed_is_called_after_ours) {
  EXPECT_EQ(SIGUSR1, in_rank([] {
              {
                LibraryStart library;
                ::signal(SIGUSR1, &count);
              }
              if (!SignalCatcher::take(stop_signals).empty()) return 1;
              SignalCatcher::set_listening(true);
              ::raise(SIGUSR1);
              return handled == 1 ? SignalCatcher::next().value_or(2) : 3;
            }));
}

TEST(SignalCatcher, a_handler_in_the_shared_object_of_a_library_is_the_librarys) {
  EXPECT_EQ(0, in_rank([] {
              ::signal(SIGUSR1, &::exit);  // a function of the C library, which no sanitizer replaces by its own
              ::signal(SIGUSR2, &count);
              note_handlers_in_library_of(reinterpret_cast<const void*>(&::exit));
              return SignalCatcher::take(stop_signals) == std::vector<int>{SIGUSR2} ? 0 : 1;
            }));
}

TEST(SignalCatcher, a_handler_of_the_program_stays_the_programs) {
  EXPECT_EQ(0, in_rank([] {
              ::signal(SIGUSR1, &count);
              { LibraryStart library; }
              return SignalCatcher::take(stop_signals) == std::vector<int>{SIGUSR1} ? 0 : 1;
            }));
}

void (*earlier_handler)(int) = nullptr;
void call_earlier(int signal) {
  earlier_handler(signal);
}

TEST(SignalCatcher, a_later_handler_may_call_ours_with_the_signal_alone) {
  EXPECT_EQ(SIGUSR1, in_rank([] {
              SignalCatcher::take(stop_signals);
              SignalCatcher::set_listening(true);
              earlier_handler = ::signal(SIGUSR1, &call_earlier);
              Forked child(answer_for_ever);
              signal_from_elsewhere(child.process, SIGUSR1);
              if (!child.answers()) return 1;
              ::raise(SIGUSR1);
              return SignalCatcher::next().value_or(2);
            }));
}

void end_with_7(int) {
  ::_exit(7);
}

TEST(SignalCatcher, a_child_with_handlers_of_its_own_can_be_sheltered) {
  EXPECT_EQ(7, in_rank([] {
              SignalCatcher::take(stop_signals);
              SignalCatcher::set_listening(true);
              Forked child([](const Forked& parent) {
                ::signal(SIGTERM, &end_with_7);
                SignalCatcher::shelter_child(stop_signals, ::getppid());
                answer_for_ever(parent);
              });
              if (!child.answers()) return 1;
              signal_from_elsewhere(child.process, SIGTERM);
              if (!child.answers()) return 2;
              ::kill(child.process, SIGTERM);
              return WEXITSTATUS(child.end());
            }));
}

// As a worker that was executed anew: the signals were never taken above it.
TEST(SignalCatcher, a_child_that_knows_nothing_of_the_rank_can_be_sheltered) {
  EXPECT_EQ(SIGTERM, in_rank([] {
              Forked child([](const Forked& parent) {
                SignalCatcher::shelter_child(stop_signals, ::getppid());
                answer_for_ever(parent);
              });
              if (!child.answers()) return 1;
              for (int signal : stop_signals) {
                signal_from_elsewhere(child.process, signal);
                if (!child.answers()) return 2;
              }
              ::kill(child.process, SIGTERM);
              return WTERMSIG(child.end());
            }));
}

}  // namespace
}  // namespace hvd::posix
