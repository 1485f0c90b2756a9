#include "native/posix/processes/process_end.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace hvd::posix {
namespace {

pid_t start_child() {
  pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // ends the child if the test fails early
    for (;;) ::pause();
  }
  return child;
}

// Kills the child but does not reap it.
void end(pid_t child) {
  ::kill(child, SIGKILL);
  siginfo_t news{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &news, WEXITED | WNOWAIT), 0);
}

TEST(OrderOfEnds, is_that_of_the_ends_and_not_of_the_starts) {
  OrderOfEnds order;
  std::vector<pid_t> children;
  for (int number = 0; number < 5; ++number) {
    children.push_back(start_child());  // this child has copies of the handles of earlier children
    order.add(children.back());
  }
  if (!order.knows(children[0])) GTEST_SKIP() << "this kernel has no handles of processes";
  EXPECT_EQ(order.next(), std::nullopt);
  std::vector<pid_t> ends = {children[3], children[0], children[4]}, found;
  for (pid_t child : ends) end(child);
  while (auto child = order.next()) found.push_back(*child);
  EXPECT_EQ(found, ends);
  EXPECT_FALSE(order.knows(children[3]));
  EXPECT_TRUE(order.knows(children[1]));
  for (pid_t child : {children[2], children[1]}) end(child);
  EXPECT_EQ(order.next(), children[2]);
  EXPECT_EQ(order.next(), children[1]);
  EXPECT_EQ(order.next(), std::nullopt);
  for (pid_t child : children) EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(ProcessEnd, is_seen_before_the_process_is_reaped) {
  pid_t child = start_child();
  OrderOfEnds handles;
  handles.add(child);
  if (!handles.knows(child)) GTEST_SKIP() << "this kernel has no handles of processes";
  EXPECT_FALSE(wait_for_process_end(child, std::chrono::milliseconds(0)));
  end(child);
  bool seen = wait_for_process_end(child, std::chrono::milliseconds(0));
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(seen);
  EXPECT_TRUE(wait_for_process_end(child, std::chrono::milliseconds(0)));
}

}  // namespace
}  // namespace hvd::posix
