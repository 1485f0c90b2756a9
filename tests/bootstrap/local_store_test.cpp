#include "bootstrap/store/local_store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "bootstrap/store/front_door.hpp"
#include "bootstrap/store/verbs.hpp"
#include "native/posix/sockets/unix_socket.hpp"
#include "store_thread.hpp"

namespace hvd::bootstrap {
namespace {

using store::Verb;

Deadline at_once() {
  return Deadline::after(std::chrono::milliseconds(20));
}

TEST(LocalStore, carries_values_across_a_fence) {
  constexpr int size = 8;
  StoreThread store(size);
  on_threads(size, [&](int rank) {
    auto client = store.join(rank, size);
    ASSERT_NE(client, nullptr);
    EXPECT_EQ(client->job(), "job-of-the-test");
    for (int round = 0; round < 20; ++round) {
      std::string key = "key " + std::to_string(round);
      ASSERT_TRUE(client->put(key, as_bytes(std::to_string(rank * 100 + round)), soon()));
      ASSERT_TRUE(client->fence(soon()));
      for (int from = 0; from < size; ++from) {
        auto value = client->get(Rank{from}, key, soon());
        ASSERT_TRUE(value) << value.error().message;
        EXPECT_EQ(to_string(*value), std::to_string(from * 100 + round));
      }
    }
  });
}

TEST(LocalStore, hands_the_cards_of_all_to_everybody) {
  constexpr int size = 5;
  StoreThread store(size);
  on_threads(size, [&](int rank) {
    auto client = store.join(rank, size);
    ASSERT_NE(client, nullptr);
    for (int round = 0; round < 20; ++round) {
      // a text that is too long for one piece
      std::string large(round == 7 ? 60000 : 3, static_cast<char>('a' + rank));
      auto cards =
          client->exchange("round " + std::to_string(round), {"the same", std::to_string(rank), large, ""}, soon());
      ASSERT_TRUE(cards) << cards.error().message;
      for (int from = 0; from < size; ++from) {
        const auto& texts = cards->of(Rank{from}).texts;
        ASSERT_EQ(texts.size(), 4u);
        EXPECT_EQ(texts[0], "the same");
        EXPECT_EQ(texts[1], std::to_string(from));
        EXPECT_EQ(texts[2], std::string(large.size(), static_cast<char>('a' + from)));
      }
    }
  });
}

TEST(LocalStore, names_whose_cards_are_late_and_hands_all_out_when_they_have_come) {
  StoreThread store(13);
  auto first = store.join(0, 13), second = store.join(1, 13);
  auto cards = first->exchange("card", {"mine"}, at_once());
  ASSERT_FALSE(cards);
  EXPECT_EQ(cards.error().code, ErrorCode::timeout);
  EXPECT_NE(cards.error().message.find("Of 13 ranks 12 did not come to the meeting: 1, 2, 3, 4, 5, 6, 7, 8 and 4 more"),
            std::string::npos)
      << cards.error().message;
  EXPECT_FALSE(first->exchange("card", {"mine"}, soon())) << "a key is used once";
  auto fenced = second->fence(at_once());
  EXPECT_NE(fenced.error().message.find("Of 13 ranks 12 did not come to the meeting: 0, 2"), std::string::npos)
      << fenced.error().message;
}

TEST(LocalStore, fails_an_exchange_that_lacks_a_rank_that_is_lost) {
  StoreThread store(3);
  auto first = store.join(0, 3), second = store.join(1, 3);
  std::thread waiting([&] {
    auto cards = first->exchange("card", {"mine"}, soon());
    ASSERT_FALSE(cards);
    EXPECT_EQ(cards.error().code, ErrorCode::peer_lost);
    EXPECT_NE(cards.error().message.find("rank 2 exited with code 3"), std::string::npos) << cards.error().message;
  });
  store.rank_ended(2, "exited with code 3");
  waiting.join();
  EXPECT_EQ(second->exchange("card", {"mine"}, soon()).error().code, ErrorCode::peer_lost);
}

TEST(LocalStore, holds_nobody_beyond_a_fence_that_lacks_a_rank) {
  StoreThread store(2);
  auto first = store.join(0, 2);
  auto second = store.join(1, 2);
  std::atomic<bool> arrived = false;
  std::thread waiting([&] {
    EXPECT_TRUE(first->fence(soon()));
    EXPECT_TRUE(arrived) << "the fence let rank 0 through alone";
  });
  ASSERT_TRUE(second->put("order", as_bytes("x"), soon()));
  arrived = true;
  EXPECT_TRUE(second->fence(soon()));
  waiting.join();
}

TEST(LocalStore, lets_a_get_wait_for_the_put) {
  StoreThread store(2);
  auto first = store.join(0, 2);
  auto second = store.join(1, 2);
  std::thread waiting([&] {
    auto value = first->get(Rank{1}, "late", soon());
    ASSERT_TRUE(value) << value.error().message;
    EXPECT_EQ(to_string(*value), "at last");
  });
  ASSERT_TRUE(second->put("late", as_bytes("at last"), soon()));
  waiting.join();
}

TEST(LocalStore, takes_empty_and_largest_values_and_no_larger_ones) {
  StoreThread store(1);
  auto client = store.join(0, 1);
  Buffer largest(store::largest_value, std::byte{7});
  std::string longest_key(store::largest_key, 'k');
  ASSERT_TRUE(client->put("empty", {}, soon()));
  ASSERT_TRUE(client->put(longest_key, largest, soon()));
  EXPECT_TRUE(client->get(Rank{0}, "empty", soon())->empty());
  EXPECT_EQ(*client->get(Rank{0}, longest_key, soon()), largest);
  Buffer larger(store::largest_value + 1);
  EXPECT_EQ(client->put("larger", larger, soon()).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(client->put(longest_key + "k", {}, soon()).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(client->put("", {}, soon()).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(client->get(Rank{1}, "empty", soon()).error().code, ErrorCode::invalid_argument);
  EXPECT_TRUE(client->fence(soon())) << "refused requests do no harm";
}

TEST(LocalStore, refuses_a_key_that_was_put_before) {
  StoreThread store(1);
  auto client = store.join(0, 1);
  ASSERT_TRUE(client->put("key", as_bytes("old"), soon()));
  auto again = client->put("key", as_bytes("new"), soon());
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("\"key\""), std::string::npos);
  EXPECT_EQ(to_string(*client->get(Rank{0}, "key", soon())), "old");
}

TEST(LocalStore, keeps_deadlines_and_stays_usable_after_a_late_get) {
  StoreThread store(2);
  auto client = store.join(0, 2);
  EXPECT_EQ(client->get(Rank{1}, "never", at_once()).error().code, ErrorCode::timeout);
  ASSERT_TRUE(client->put("mine", as_bytes("1"), soon()));
  auto peer = store.join(1, 2);
  // The client has given up the get of "never". Its answer arrives only now, before the answer to the next get.
  ASSERT_TRUE(peer->put("never", as_bytes("after all"), soon()));
  EXPECT_EQ(to_string(*client->get(Rank{0}, "mine", soon())), "1");
}

TEST(LocalStore, reports_a_fence_that_is_late_and_then_stays_failed) {
  StoreThread store(2);
  auto client = store.join(0, 2);
  EXPECT_EQ(client->fence(at_once()).error().code, ErrorCode::timeout);
  EXPECT_FALSE(client->fence(soon())) << "the store counts the first call; a second one would be another fence";
}

TEST(LocalStore, still_tells_after_a_late_fence_who_has_put_what) {
  StoreThread store(3);
  auto client = store.join(0, 3), present = store.join(1, 3);
  ASSERT_TRUE(present->put("card", as_bytes("here"), soon()));
  EXPECT_EQ(client->fence(at_once()).error().code, ErrorCode::timeout);
  EXPECT_EQ(to_string(*client->get(Rank{1}, "card", soon())), "here");
  EXPECT_EQ(client->get(Rank{2}, "card", at_once()).error().code, ErrorCode::timeout);
}

TEST(LocalStore, tells_the_launcher_of_an_abort) {
  StoreThread store(2);
  auto client = store.join(1, 2);
  client->abort("the loss is not a number");
  ASSERT_TRUE(client->put("after", {}, soon()));  // the answer shows that the store has handled the abort, which was
                                                  // sent before
  EXPECT_EQ(store.aborts(), std::vector<std::string>{"1: the loss is not a number"});
}

TEST(LocalStore, refuses_ranks_that_do_not_fit_the_job) {
  StoreThread store(2);
  auto joined = store.join(0, 2);
  struct Row {
    int rank, size;
    const char* expected;
  };
  for (const Row& row : {Row{0, 2, "a child of a rank"}, Row{2, 3, "started 2 ranks"}, Row{1, 3, "started 2 ranks"},
                         Row{5, 2, "rank 5 of 2"}, Row{-1, 2, "rank -1"}}) {
    auto client = LocalStoreClient::join(store.address(), store.secret(), Rank{row.rank}, row.size, soon());
    ASSERT_FALSE(client) << row.expected;
    EXPECT_NE(client.error().message.find(row.expected), std::string::npos) << client.error().message;
  }
}

TEST(LocalStore, lets_a_rank_leave_and_join_again) {
  constexpr int size = 3;
  StoreThread store(size);
  on_threads(size, [&](int rank) {
    for (int round = 0; round < 30; ++round) {
      auto client = store.join(rank, size);
      ASSERT_NE(client, nullptr);
      ASSERT_TRUE(client->put("round " + std::to_string(round), {}, soon()));
      auto fence = client->fence(soon());
      ASSERT_TRUE(fence) << fence.error().message;
      ASSERT_TRUE(client->get(Rank{(rank + 1) % size}, "round " + std::to_string(round), soon()));
    }
  });
}

TEST(LocalStore, turns_away_who_does_not_know_the_secret) {
  StoreThread store(1);
  std::string wrong = store.secret();
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  for (const std::string& secret : {wrong, std::string(), store.secret() + "0"}) {
    auto client = LocalStoreClient::join(store.address(), secret, Rank{0}, 1, soon());
    ASSERT_FALSE(client);
    EXPECT_EQ(client.error().code, ErrorCode::mismatch);
    EXPECT_NE(client.error().message.find(local_store::secret_variable), std::string::npos) << client.error().message;
  }
  EXPECT_NE(store.join(0, 1), nullptr);
}

TEST(LocalStore, says_what_an_unreachable_address_means) {
  std::string gone;
  {
    StoreThread store(1);
    gone = store.address();
  }
  for (const std::string& address : {gone, std::string("nonsense"), std::string("@")}) {
    auto client = LocalStoreClient::join(address, "secret", Rank{0}, 1, soon());
    ASSERT_FALSE(client);
    EXPECT_NE(client.error().message.find(local_store::address_variable), std::string::npos);
  }
}

// A raw connection that can send what the real client never sends.
class Stranger {
 public:
  explicit Stranger(const StoreThread& store) : socket_(std::move(*posix::connect_to_unix_socket(store.address()))) {}
  void send(ConstBytes message) { (void)posix::send_message(socket_, message); }
  void greet(const StoreThread& store, int rank, int size) {
    send_greeting(store, rank, size);
    EXPECT_FALSE(is_dropped());  // the store has sent its welcome
  }
  void send_greeting(const StoreThread& store, int rank, int size) {
    Buffer hello = store::message(Verb::hello, 1);
    ByteWriter out(hello);
    out.put(store::magic);
    out.put(store::wire_version);
    out.put_string(store.secret());
    out.put(std::int32_t{rank});
    out.put(std::int32_t{size});
    out.put(std::int32_t{1});
    send(hello);
  }
  // Waits until a message arrives or the connection ends. True if the connection has ended.
  bool is_dropped() {
    pollfd entry{socket_.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, 20000), 1) << "neither answered nor dropped";
    Buffer message;
    message.reserve(store::largest_message);
    posix::FileDescriptor unwanted;
    auto got = posix::receive_message(socket_, message, unwanted);
    return got && *got == posix::Delivery::closed;
  }

 private:
  posix::FileDescriptor socket_;
};

TEST(LocalStore, drops_garbage_of_strangers_and_serves_on) {
  StoreThread store(1);
  std::mt19937 random(4711);
  auto client = store.join(0, 1);
  for (int round = 0; round < 200; ++round) {
    Buffer garbage(1 + random() % 300);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    if (round % 2 == 0) garbage[0] = static_cast<std::byte>(Verb::hello);
    Stranger stranger(store);
    stranger.send(garbage);
    EXPECT_TRUE(stranger.is_dropped()) << "round " << round;
  }
  EXPECT_TRUE(client->fence(soon()));
}

TEST(LocalStore, lets_strangers_that_say_nothing_hold_up_nobody_for_long) {
  StoreThread store(1, std::chrono::milliseconds(20));
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(std::make_unique<Stranger>(store));
  EXPECT_NE(store.join(0, 1), nullptr);
  EXPECT_TRUE(silent.front()->is_dropped());
}

TEST(LocalStore, seats_all_ranks_that_came_while_the_launcher_was_busy) {
  constexpr int size = 300;
  make_room_for_descriptors(2 * size);
  StoreThread store(size, std::chrono::seconds(5), StoreThread::Begin::later);
  std::vector<Stranger> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back(store);
    ranks.back().send_greeting(store, rank, size);
  }
  store.begin();
  int refused = 0;
  for (Stranger& rank : ranks) refused += rank.is_dropped();
  EXPECT_EQ(refused, 0) << "of " << size;
}

TEST(LocalStore, opens_where_the_limit_of_open_files_has_no_room_for_strangers) {
  pid_t child = ::fork();
  if (child == 0) {
    rlimit low{200, 200};
    ::setrlimit(RLIMIT_NOFILE, &low);
    ::_exit(LocalStoreServer::open({"job", 100, nullptr}) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(LocalStore, raises_its_limit_of_open_files_where_it_may) {
  pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 100;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    auto store = LocalStoreServer::open({"job", 1000, nullptr});
    ::getrlimit(RLIMIT_NOFILE, &limit);
    ::_exit(limit.rlim_max < 1200 || (store && limit.rlim_cur >= 1000) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(LocalStore, is_entered_by_a_rank_that_was_put_out_before_it_was_heard) {
  auto listening = posix::listen_on_unix_socket();
  ASSERT_TRUE(listening);
  std::thread store([&] {
    for (int round = 0; round < 3; ++round) {
      pollfd entry{listening->socket.get(), POLLIN, 0};
      ::poll(&entry, 1, -1);
      auto client = posix::accept_from(listening->socket);
      if (round < 2) continue;
      entry.fd = client->get();
      ::poll(&entry, 1, -1);
      Buffer hello;
      hello.reserve(store::largest_message);
      posix::FileDescriptor unwanted;
      EXPECT_EQ(*posix::receive_message(*client, hello, unwanted), posix::Delivery::done);
      Buffer welcome = store::message(Verb::welcome, 1);
      ByteWriter(welcome).put_string("job");
      EXPECT_EQ(*posix::send_message(*client, welcome), posix::Delivery::done);
    }
  });
  auto client = LocalStoreClient::join(listening->address, "secret", Rank{0}, 1, soon());
  EXPECT_TRUE(client) << client.error().message;
  store.join();
}

TEST(LocalStore, loses_a_rank_that_talks_garbage) {
  struct Row {
    const char* what;
    std::function<Buffer()> message;
  };
  auto with_body = [](Verb verb, const std::function<void(ByteWriter&)>& fill) {
    Buffer message = store::message(verb, 2);
    ByteWriter out(message);
    fill(out);
    return message;
  };
  const Row rows[] = {
      {"an unknown verb", [&] { return store::message(static_cast<Verb>(99), 2); }},
      {"an answer", [&] { return store::message(Verb::done, 2); }},
      {"a second hello", [&] { return store::message(Verb::hello, 2); }},
      {"a put without a value", [&] { return with_body(Verb::put, [](ByteWriter& out) { out.put_string("key"); }); }},
      {"a put of more than it has",
       [&] {
         return with_body(Verb::put, [](ByteWriter& out) {
           out.put_string("key");
           out.put(std::uint32_t{1 << 30});
         });
       }},
      {"a put with something behind it",
       [&] {
         return with_body(Verb::put, [](ByteWriter& out) {
           out.put_string("key");
           out.put_string("");
           out.put('x');
         });
       }},
      {"a get of no rank",
       [&] {
         return with_body(Verb::get, [](ByteWriter& out) {
           out.put(std::int32_t{9});
           out.put_string("key");
         });
       }},
      {"too long a message", [&] { return Buffer(store::largest_message + 1); }},
      {"three bytes", [&] { return Buffer(3); }},
  };
  for (const Row& row : rows) {
    StoreThread store(2);
    auto client = store.join(0, 2);
    Stranger rank(store);
    rank.greet(store, 1, 2);
    rank.send(row.message());
    EXPECT_TRUE(rank.is_dropped()) << row.what;
    auto fence = client->fence(soon());
    ASSERT_FALSE(fence) << row.what;
    EXPECT_EQ(fence.error().code, ErrorCode::peer_lost);
    EXPECT_NE(fence.error().message.find("rank 1"), std::string::npos) << fence.error().message;
  }
}

TEST(LocalStore, names_the_rank_that_ended_before_it_came) {
  StoreThread store(3);
  auto client = store.join(0, 3);
  std::thread waiting([&] {
    auto fence = client->fence(soon());
    ASSERT_FALSE(fence);
    EXPECT_EQ(fence.error().code, ErrorCode::peer_lost);
    EXPECT_NE(fence.error().message.find("rank 2 exited with code 3"), std::string::npos) << fence.error().message;
  });
  store.rank_ended(2, "exited with code 3");
  waiting.join();
  auto value = client->get(Rank{2}, "card", soon());
  ASSERT_FALSE(value);
  EXPECT_NE(value.error().message.find("rank 2 exited with code 3"), std::string::npos);
}

TEST(LocalStore, forgives_an_end_after_the_fence) {
  StoreThread store(2);
  auto client = store.join(0, 2);
  auto peer = store.join(1, 2);
  std::thread other([&] {
    EXPECT_TRUE(peer->put("card", as_bytes("here"), soon()));
    EXPECT_TRUE(peer->fence(soon()));
    peer.reset();
    store.rank_ended(1, "exited with code 0");
  });
  EXPECT_TRUE(client->fence(soon()));
  EXPECT_EQ(to_string(*client->get(Rank{1}, "card", soon())), "here");
  other.join();
}

// Ranks as processes. This process serves the store in a loop, as the launcher does. There are no threads.
class Processes {
 public:
  explicit Processes(int size) : server_(std::move(*LocalStoreServer::open({"job", size, nullptr}))) {}
  ~Processes() {
    for (pid_t pid : pids_) {
      if (pid == 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }
  // The return value of `body` is the exit code of the process.
  void start(int rank, int size, const std::function<int(StoreClient&)>& body) {
    std::string address = server_->variables().at(0).second;
    std::string secret = server_->variables().at(1).second;
    pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      auto client = LocalStoreClient::join(address, secret, Rank{rank}, size, soon());
      ::_exit(client ? body(**client) : 99);
    }
    pids_.push_back(pid);
  }
  // Serves the store until process number `index` has ended. Returns the status that waitpid gives.
  int wait(std::size_t index) {
    pid_t pid = pids_[index];
    posix::FileDescriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    for (;;) {
      pollfd entries[] = {{server_->descriptor(), POLLIN, 0}, {process.get(), POLLIN, 0}};
      if (::poll(entries, 2, 30000) == 0) return -1;
      server_->serve();
      if ((entries[1].revents & POLLIN) == 0) continue;
      int status = -1;
      ::waitpid(pid, &status, 0);
      pids_[index] = 0;
      return status;
    }
  }

 private:
  std::unique_ptr<LocalStoreServer> server_;
  std::vector<pid_t> pids_;
};

TEST(LocalStore, serves_processes) {
  constexpr int size = 4;
  Processes processes(size);
  for (int rank = 0; rank < size; ++rank)
    processes.start(rank, size, [rank](StoreClient& client) {
      if (!client.put("card", as_bytes(std::to_string(rank)), soon()) || !client.fence(soon())) return 1;
      for (int from = 0; from < size; ++from) {
        auto value = client.get(Rank{from}, "card", soon());
        if (!value || to_string(*value) != std::to_string(from)) return 2;
      }
      return 0;
    });
  for (std::size_t rank = 0; rank < size; ++rank) EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
}

TEST(LocalStore, names_a_rank_that_is_killed_while_others_wait) {
  Processes processes(3);
  auto wait_for_all = [](StoreClient& client) {
    auto fence = client.fence(soon());
    return !fence && fence.error().code == ErrorCode::peer_lost &&
                   fence.error().message.find("rank 2") != std::string::npos
               ? 0
               : 1;
  };
  processes.start(0, 3, wait_for_all);
  processes.start(1, 3, wait_for_all);
  processes.start(2, 3, [](StoreClient& client) {
    (void)client.put("card", {}, soon());
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(1), 0);
  EXPECT_TRUE(WIFSIGNALED(processes.wait(2)));
}

TEST(LocalStore, notices_the_death_of_a_rank_that_has_children) {
  Processes processes(2);
  int blocker[2];
  ASSERT_EQ(::pipe2(blocker, O_CLOEXEC), 0);
  processes.start(0, 2, [](StoreClient& client) {
    auto fence = client.fence(soon());
    return !fence && fence.error().code == ErrorCode::peer_lost ? 0 : 1;
  });
  processes.start(1, 2, [&](StoreClient&) {
    ::close(blocker[1]);
    if (::fork() == 0) {  // like a worker of a data loader: lives until the test ends
      char byte = 0;
      (void)!::read(blocker[0], &byte, 1);
      ::_exit(0);
    }
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(processes.wait(0), 0);
  processes.wait(1);
  ::close(blocker[0]);
  ::close(blocker[1]);
}

}  // namespace
}  // namespace hvd::bootstrap
