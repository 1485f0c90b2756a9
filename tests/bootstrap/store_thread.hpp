#pragma once
// A local store that a separate thread serves, in place of the launcher's loop.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/store/local_store.hpp"

namespace hvd::bootstrap {

inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

class StoreThread {
 public:
  enum class Begin { now, later };
  explicit StoreThread(int size, std::chrono::milliseconds strangers_time = std::chrono::seconds(5),
                       Begin begun = Begin::now)
      : stop_(::eventfd(0, EFD_CLOEXEC)) {
    LocalStoreServer::Options options;
    options.strangers_time = strangers_time;
    options.job = "job-of-the-test";
    options.size = size;
    options.on_abort = [this](Rank rank, std::string_view reason) {
      std::lock_guard lock(mutex_);
      aborts_.push_back(std::to_string(rank.value) + ": " + std::string(reason));
    };
    auto server = LocalStoreServer::open(std::move(options));
    EXPECT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    address_ = server_->variables().at(0).second;
    secret_ = server_->variables().at(1).second;
    if (begun == Begin::now) begin();
  }
  // Starts to serve. Before that the store does not answer, as if the launcher were stopped.
  void begin() {
    thread_ = std::thread([this] { run(); });
  }
  ~StoreThread() {
    stop();
    ::close(stop_);
  }
  void stop() {
    if (!thread_.joinable()) return;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    knock();
    thread_.join();
  }

  std::unique_ptr<StoreClient> join(int rank, int size) {
    auto client = LocalStoreClient::join(address_, secret_, Rank{rank}, size, soon());
    EXPECT_TRUE(client) << client.error().message;
    return client ? std::move(*client) : nullptr;
  }
  // The server's thread reports the end of the rank, because it owns the server.
  void rank_ended(int rank, std::string how) {
    {
      std::lock_guard lock(mutex_);
      ended_.emplace_back(Rank{rank}, std::move(how));
    }
    knock();
  }
  std::vector<std::string> aborts() {
    std::lock_guard lock(mutex_);
    return aborts_;
  }
  const std::string& address() const { return address_; }
  const std::string& secret() const { return secret_; }

 private:
  void knock() {
    std::uint64_t one = 1;
    ASSERT_EQ(::write(stop_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  void run() {
    for (;;) {
      pollfd entries[] = {{server_->descriptor(), POLLIN, 0}, {stop_, POLLIN, 0}};
      ::poll(entries, 2, -1);
      server_->serve();
      if ((entries[1].revents & POLLIN) == 0) continue;
      std::uint64_t count = 0;
      ASSERT_EQ(::read(stop_, &count, sizeof count), static_cast<ssize_t>(sizeof count));
      std::vector<std::pair<Rank, std::string>> ended;
      {
        std::lock_guard lock(mutex_);
        ended.swap(ended_);
        if (stopping_ && ended.empty()) return;
      }
      for (auto& [rank, how] : ended) server_->rank_ended(rank, how);
      if (!ended.empty()) knock();  // stop() may have knocked at the same time: knock again
    }
  }

  int stop_;
  std::unique_ptr<LocalStoreServer> server_;
  std::string address_;
  std::string secret_;
  std::mutex mutex_;
  bool stopping_ = false;
  std::vector<std::string> aborts_;
  std::vector<std::pair<Rank, std::string>> ended_;
  std::thread thread_;
};

// Runs body(rank) for each rank on its own thread.
inline void on_threads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace hvd::bootstrap
