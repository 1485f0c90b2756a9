#include "launcher/lifeline.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>

namespace hvd::launcher {
namespace {

constexpr std::chrono::seconds patience(5);
const Deadline soon = Deadline::never();

// Serves until a lifeline breaks.
std::vector<Lifelines::Loss> serve_until_one_breaks(Lifelines& lifelines) {
  for (;;) {
    pollfd readable{lifelines.descriptor(), POLLIN, 0};
    ::poll(&readable, 1, -1);
    if (auto lost = lifelines.serve(); !lost.empty()) return lost;
  }
}

TEST(Lifelines, tell_both_ends_when_the_other_is_gone) {
  auto lifelines = Lifelines::open({2, {}, {}, patience});
  ASSERT_TRUE(lifelines) << lifelines.error().message;
  std::vector<Lifelines::Loss> lost;
  std::string token = (*lifelines)->token(1);
  std::thread server([&] { lost = serve_until_one_breaks(**lifelines); });
  auto line = take_lifeline((*lifelines)->addresses(), token, patience, soon);
  EXPECT_TRUE(line) << line.error().message;
  if (line) line->reset();
  server.join();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].host, 1u);
  EXPECT_TRUE(lost[0].of_agent);

  token = (*lifelines)->token(0);
  std::string addresses = (*lifelines)->addresses();
  Result<posix::FileDescriptor> other = Error(ErrorCode::system, "not tried");
  std::thread agent([&] { other = take_lifeline(addresses, token, patience, soon); });
  while (!(*lifelines)->token(0).empty()) {
    pollfd readable{(*lifelines)->descriptor(), POLLIN, 0};
    ::poll(&readable, 1, -1);
    (void)(*lifelines)->serve();
  }
  agent.join();
  ASSERT_TRUE(other) << other.error().message;
  lifelines->reset();
  pollfd readable{other->get(), POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, -1), 1);
}

TEST(Lifelines, are_not_taken_by_strangers) {
  auto lifelines = Lifelines::open({1, {}, {}, patience});
  ASSERT_TRUE(lifelines) << lifelines.error().message;
  std::string addresses = (*lifelines)->addresses();
  Result<posix::FileDescriptor> line = Error(ErrorCode::system, "not tried");
  std::thread stranger([&] { line = take_lifeline(addresses, std::string(32, 'x'), patience, soon); });
  std::atomic<bool> done = false;
  std::thread server([&] {
    while (!done) {
      pollfd readable{(*lifelines)->descriptor(), POLLIN, 0};
      ::poll(&readable, 1, 20);
      (void)(*lifelines)->serve();
    }
  });
  stranger.join();
  EXPECT_FALSE(line);
  EXPECT_FALSE((*lifelines)->token(0).empty());
  done = true;
  server.join();
}

TEST(Lifelines, need_an_interface_that_is_there) {
  EXPECT_FALSE(Lifelines::open({1, {"no-such-interface"}, {}, patience}));
}

}  // namespace
}  // namespace hvd::launcher
