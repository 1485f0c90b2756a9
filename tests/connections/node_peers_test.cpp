#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "native/posix/memory/shared_memory.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "native/posix/processes/process_end.hpp"
#include "native/posix/sockets/unix_socket.hpp"
#include "shm_processes.hpp"

namespace hvd::connections {
namespace {

using testing::RankProcess;
using testing::run_processes;

// Reads the next number from a descriptor that on_lost() writes to: one number per lost rank.
int next_number(int descriptor, int patience_ms = 20'000) {
  pollfd watched{descriptor, POLLIN, 0};
  if (::poll(&watched, 1, patience_ms) != 1) return -1;
  int number = -1;
  return ::read(descriptor, &number, sizeof number) == sizeof number ? number : -1;
}

struct Losses {
  explicit Losses(NodePeers& peers) {
    EXPECT_EQ(::pipe(ends), 0);
    peers.on_lost([write_end = ends[1]](Rank rank) {
      [[maybe_unused]] auto written = ::write(write_end, &rank.value, sizeof rank.value);
    });
  }
  int next(int patience_ms = 20'000) { return next_number(ends[0], patience_ms); }
  int ends[2];
};

std::shared_ptr<NodePeers> meet(RankProcess& process) {
  auto peers = process.meet();
  if (peers) return *peers;
  std::fprintf(stderr, "rank %d: %s\n", process.world.rank.value, peers.error().message.c_str());
  ::_exit(100);
}

posix::FileDescriptor wait_for(NodePeers& peers, std::string_view name, posix::WaitWord& wake) {
  for (;;) {
    if (auto taken = peers.take(name)) return std::move(*taken);
    auto announced = wake.announce();
    if (auto taken = peers.take(name)) {
      wake.retract();
      return std::move(*taken);
    }
    wake.sleep(announced, posix::WaitWord::forever);
  }
}

TEST(NodePeers, hand_over_memory_that_all_ranks_map) {
  for (int status : run_processes(4, [](RankProcess& process) {
         auto peers = meet(process);
         posix::WaitWord wake;
         peers->set_wake(&wake);
         if (process.world.rank == Rank{0}) {
           auto memory = posix::SharedMemory::create("test", 4096);
           std::strcpy(static_cast<char*>(memory->data()), "hello");
           if (!peers->offer(process.node, "some memory", memory->descriptor())) return 1;
           // Waits until each of the other ranks reports that it has seen the memory.
           posix::WaitWord word;
           for (int rank = 1; rank < 4; ++rank) wait_for(*peers, "seen by " + std::to_string(rank), wake);
         } else {
           auto mapped = posix::SharedMemory::map(wait_for(*peers, "some memory", wake), 4096);
           if (!mapped || std::strcmp(static_cast<char*>(mapped->data()), "hello") != 0) return 2;
           if (peers->take("some memory")) return 3;
           auto memory = posix::SharedMemory::create("test", 4096);
           Group pair{{Rank{0}, process.world.rank}, Seat{1}};
           if (!peers->offer(pair, "seen by " + std::to_string(process.world.rank.value), memory->descriptor()))
             return 4;
         }
         peers->leave();
         return 0;
       })) {
    EXPECT_EQ(status, 0);
  }
}

TEST(NodePeers, report_a_killed_rank_once_even_while_a_child_that_it_forked_lives_on) {
  int keep_child[2];
  ASSERT_EQ(::pipe(keep_child), 0);
  auto statuses = run_processes(3, [&](RankProcess& process) {
    auto peers = meet(process);
    if (process.world.rank == Rank{1}) {
      Losses losses(*peers);
      if (::fork() == 0) {  // lives until the test closes the pipe
        ::close(keep_child[1]);
        char nothing;
        [[maybe_unused]] auto got = ::read(keep_child[0], &nothing, 1);
        ::_exit(0);
      }
      ::raise(SIGKILL);
    }
    Losses losses(*peers);
    if (losses.next() != 1) return 1;
    if (losses.next(0) != -1) return 2;
    peers->leave();
    return 0;
  });
  ::close(keep_child[1]);
  ::close(keep_child[0]);
  EXPECT_EQ(statuses[0], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[1]));
  EXPECT_EQ(statuses[2], 0);
}

TEST(NodePeers, report_ranks_that_were_lost_before_anybody_asked) {
  auto statuses = run_processes(2, [](RankProcess& process) {
    auto peers = meet(process);
    if (process.world.rank == Rank{1}) return 0;  // rank 1 exits without leave(), so it is lost
    posix::WaitWord wake;
    auto announced = wake.announce();
    peers->set_wake(&wake);
    wake.sleep(announced, std::chrono::milliseconds(100));  // rank 1 is usually lost by now, but need not be
    Losses losses(*peers);
    return losses.next() == 1 ? 0 : 1;
  });
  EXPECT_EQ(statuses[0], 0);
}

TEST(NodePeers, do_not_report_a_rank_that_has_left) {
  auto statuses = run_processes(3, [](RankProcess& process) {
    auto peers = meet(process);
    Losses losses(*peers);
    if (process.world.rank == Rank{1}) {
      peers->leave();
      return 0;
    }
    // Rank 2 dies after rank 1 has ended. Rank 2's death must be the first loss that is reported.
    if (process.world.rank == Rank{2}) {
      posix::wait_for_process_end(process.world.member(Rank{1}).pid, std::chrono::seconds(20));
      ::raise(SIGKILL);
    }
    return losses.next() == 2 ? 0 : 1;
  });
  EXPECT_EQ(statuses[0], 0);
  EXPECT_EQ(statuses[1], 0);
  EXPECT_TRUE(WIFSIGNALED(statuses[2]));
}

TEST(NodePeers, drop_connections_that_do_not_know_the_job_and_report_a_few) {
  World world = testing::made_up_world({2});
  std::vector<PeerListener> listeners;
  for (auto& member : world.members) {
    listeners.push_back(std::move(*PeerListener::open()));
    member.address = listeners.back().address();
  }
  auto silent = posix::connect_to_unix_socket(world.members[0].address);
  ASSERT_TRUE(silent);
  std::vector<posix::FileDescriptor> wrong;
  for (int i = 0; i < 40; ++i) {
    auto one = posix::connect_to_unix_socket(world.members[0].address);
    ASSERT_TRUE(one && *one);
    ASSERT_TRUE(posix::send_message(*one, as_bytes("I am rank 1, believe me")));
    wrong.push_back(std::move(*one));
  }
  ::testing::internal::CaptureStderr();
  std::vector<std::shared_ptr<NodePeers>> met(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      World mine = world;
      mine.rank = Rank{rank};
      auto peers = NodePeers::meet(mine, testing::everybody(mine), std::move(listeners[static_cast<std::size_t>(rank)]),
                                   Deadline::after(std::chrono::seconds(20)));
      ASSERT_TRUE(peers) << peers.error().message;
      met[static_cast<std::size_t>(rank)] = *peers;
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 4) << log;
  EXPECT_NE(log.find("dropped 37 more connections"), std::string::npos) << log;
  for (auto* stranger : {&*silent, &wrong.front()}) {
    Buffer message;
    message.reserve(100);
    posix::FileDescriptor none;
    auto received = posix::receive_message(*stranger, message, none);
    ASSERT_TRUE(received);
    EXPECT_EQ(*received, posix::Delivery::closed);
  }
}

TEST(NodePeers, name_the_ranks_that_did_not_come) {
  World world = testing::made_up_world({3});
  std::vector<PeerListener> listeners;
  for (auto& member : world.members) {
    listeners.push_back(std::move(*PeerListener::open()));
    member.address = listeners.back().address();
  }
  auto peers = NodePeers::meet(world, testing::everybody(world), std::move(listeners[0]),
                               Deadline::after(std::chrono::milliseconds(1)));
  ASSERT_FALSE(peers);
  EXPECT_EQ(peers.error().code, ErrorCode::timeout);
  EXPECT_NE(peers.error().message.find("rank 1"), std::string::npos);
  EXPECT_NE(peers.error().message.find("rank 2"), std::string::npos);
}

TEST(NodePeers, do_not_wait_for_a_rank_whose_process_ended_before_it_came) {
  World world = testing::made_up_world({2});
  std::vector<PeerListener> listeners;
  for (auto& member : world.members) {
    listeners.push_back(std::move(*PeerListener::open()));
    member.address = listeners.back().address();
    member.process_space = "of this test";
  }
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[1]);
    char nothing;
    ::_exit(::read(ends[0], &nothing, 1) == 0 ? 0 : 1);
  }
  world.members[1].pid = child;
  std::jthread ends_the_child([&] { ::close(ends[1]); });
  auto peers = NodePeers::meet(world, testing::everybody(world), std::move(listeners[0]),
                               Deadline::after(std::chrono::seconds(100)));
  ASSERT_FALSE(peers);
  EXPECT_EQ(peers.error().code, ErrorCode::peer_lost);
  EXPECT_NE(peers.error().message.find("rank 1"), std::string::npos) << peers.error().message;
  EXPECT_NE(peers.error().message.find("ended before it was connected"), std::string::npos) << peers.error().message;
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
}

TEST(NodePeers, tell_who_was_lost_before_anybody_listens_for_losses) {
  auto statuses = run_processes(2, [](RankProcess& process) {
    auto peers = meet(process);
    if (process.world.rank == Rank{1}) return 0;  // without leaving
    posix::WaitWord wake;
    peers->set_wake(&wake);
    while (!peers->first_lost()) {
      auto announced = wake.announce();
      if (!peers->first_lost()) wake.sleep(announced, posix::WaitWord::forever);
      else wake.retract();
    }
    return peers->first_lost() == Rank{1} ? 0 : 1;
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0}));
}

TEST(NodePeers, alone_on_a_node_need_no_thread) {
  World world = testing::made_up_world({1});
  auto threads_now = [] {
    std::ifstream file("/proc/self/status");
    std::string line;
    while (std::getline(file, line))
      if (line.starts_with("Threads:")) return line;
    return std::string();
  };
  std::string before = threads_now();
  auto peers = NodePeers::meet(world, testing::everybody(world), std::move(*PeerListener::open()),
                               Deadline::after(std::chrono::seconds(1)));
  ASSERT_TRUE(peers);
  EXPECT_EQ(threads_now(), before);
}

}  // namespace
}  // namespace hvd::connections
