#include "native/posix/processes/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "native/posix/processes/signals.hpp"

namespace hvd::posix {
namespace {

// Runs in a child, because it closes descriptors of the whole process. Returns 0 if exactly the right descriptors are
// left.
int descriptors_left_by(void (*close_all)(unsigned, unsigned)) {
  pid_t child = ::fork();
  if (child == 0) {
    rlimit few{256, 256};
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (int descriptor = 100; descriptor < 200; ++descriptor) ::dup2(STDERR_FILENO, descriptor);
    close_all(110, 120);
    close_all(150, ~0u);
    int wrong = 0;
    for (int descriptor = 100; descriptor < 256; ++descriptor) {
      bool stays = descriptor < 110 || (descriptor > 120 && descriptor < 150);
      if ((::fcntl(descriptor, F_GETFD) >= 0) != stays) ++wrong;
    }
    ::_exit(wrong);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(Descriptors, are_closed_from_the_first_to_the_last) {
  EXPECT_EQ(descriptors_left_by(&close_descriptors), 0);
  EXPECT_EQ(descriptors_left_by(&close_descriptors_one_by_one), 0);
}

TEST(Signals, have_their_usual_names) {
  EXPECT_EQ(name_of_signal(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(name_of_signal(SIGIOT), "SIGABRT");
  EXPECT_EQ(name_of_signal(SIGRTMIN), "signal " + std::to_string(SIGRTMIN));
  for (int signal = 1; signal < 32; ++signal) EXPECT_TRUE(name_of_signal(signal).starts_with("SIG")) << signal;
}

TEST(Process, is_known_by_when_it_began) {
  auto mine = began_at(::getpid());
  ASSERT_TRUE(mine);
  EXPECT_EQ(began_at(::getpid()), mine);
  EXPECT_EQ(began_at(1 << 30), std::nullopt);
  pid_t child = ::fork();
  if (child == 0) ::_exit(began_at(::getpid()).value_or(0) >= *mine ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(process_space().empty());
}

}  // namespace
}  // namespace hvd::posix
