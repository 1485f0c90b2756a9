#include "native/posix/processes/thread.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "sanitized.hpp"

namespace hvd::posix {
namespace {

TEST(Thread, of_ours_handles_no_signal_but_its_own_faults) {
  sigset_t mine, theirs;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  auto thread = start_thread("hvd-test", [&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &theirs); });
  ASSERT_TRUE(thread) << thread.error().message;
  thread->join();
  for (int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGPIPE}) EXPECT_EQ(sigismember(&theirs, signal), 1) << signal;
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) EXPECT_EQ(sigismember(&theirs, fault), 0) << fault;
  sigset_t after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  for (int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGPIPE})
    EXPECT_EQ(sigismember(&after, signal), sigismember(&mine, signal)) << signal;
}

TEST(Thread, that_cannot_be_had_is_an_error_with_the_limits_named) {
  if (hvd::testing::is_sanitized) GTEST_SKIP() << "a sanitizer cannot live under a limit of the address space";
  auto without_memory = [] {
    rlimit none{0, 0};
    ::setrlimit(RLIMIT_AS, &none);
    for (;;) {  // the first threads may get stacks of threads that have ended
      auto thread = start_thread("hvd-test", [] { ::pause(); });
      if (thread) {
        thread->detach();
        continue;
      }
      std::fprintf(stderr, "%s\n", thread.error().message.c_str());
      std::_Exit(0);
    }
  };
  EXPECT_EXIT(without_memory(), ::testing::ExitedWithCode(0),
              "no thread hvd-test can be started.*ulimit -u.*ulimit -v");
}

}  // namespace
}  // namespace hvd::posix
