#pragma once
// Ranks in this process with TCP connections over loopback, and strangers that disturb them.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "connections/net_peers.hpp"
#include "made_up_world.hpp"
#include "native/posix/memory/wait_word.hpp"
#include "native/posix/sockets/tcp_address.hpp"

namespace hvd::testing {

inline Config loopback_config() {
  Config config;
  config.network_interfaces = "lo";
  return config;
}

struct NetRank {
  World world;
  posix::WaitWord wake;
  std::shared_ptr<connections::NetPeers> peers;

  // Asks again until the connection exists or has failed.
  Result<posix::FileDescriptor> connection(int peer, std::string_view name) {
    for (auto deadline = Deadline::after(std::chrono::seconds(60));;) {
      std::uint32_t announced = wake.announce();
      auto asked = peers->connection(Rank{peer}, name);
      if (!asked || *asked || deadline.passed()) {
        wake.retract();
        if (!asked) return std::move(asked.error());
        if (*asked) return std::move(**asked);
        return Error(ErrorCode::timeout, "the test waited for: " + peers->describe_missing());
      }
      wake.sleep(announced, std::chrono::seconds(1));
    }
  }
};

class NetRanks {
 public:
  explicit NetRanks(int size, Config config = loopback_config()) {
    World world = made_up_world(std::vector<int>(static_cast<std::size_t>(size), 1));
    world.secret = "a secret of 32 bytes, more or less";
    std::vector<connections::NetListener> listeners;
    for (Member& member : world.members) {
      auto listener = connections::NetListener::open(config);
      if (!listener) throw std::runtime_error(listener.error().message);
      member.endpoints = listener->endpoints();
      listeners.push_back(std::move(*listener));
    }
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(std::make_unique<NetRank>());
      NetRank& made = *ranks_.back();
      made.world = world;
      made.world.rank = Rank{rank};
      auto peers =
          connections::NetPeers::start(made.world, config, std::move(listeners[static_cast<std::size_t>(rank)]));
      if (!peers) throw std::runtime_error(peers.error().message);
      made.peers = std::move(*peers);
      made.peers->set_wake(&made.wake);
    }
  }
  NetRank& operator[](int rank) { return *ranks_.at(static_cast<std::size_t>(rank)); }
  posix::TcpAddress endpoint(int rank) {
    std::string all = (*this)[rank].world.me().endpoints;
    return posix::TcpAddress::parse(all.substr(0, all.find(' '))).value();
  }

 private:
  std::vector<std::unique_ptr<NetRank>> ranks_;
};

// A program that does not belong to the job. It has its own loopback address.
class Stranger {
 public:
  Stranger(const posix::TcpAddress& to, const char* from) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    auto mine = posix::TcpAddress::parse(std::string(from) + ":0").value();
    is_connected_ =
        ::bind(socket_.get(), mine.data(), mine.size()) == 0 && ::connect(socket_.get(), to.data(), to.size()) == 0;
  }
  bool is_connected() const { return is_connected_; }
  void say(std::string_view text) {
    EXPECT_EQ(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Waits until the other end closes the connection. True if it has sent nothing before.
  bool is_dropped_without_an_answer() {
    char byte = 0;
    return ::recv(socket_.get(), &byte, 1, 0) <= 0;
  }
  int descriptor() const { return socket_.get(); }

 private:
  posix::FileDescriptor socket_;
  bool is_connected_ = false;
};

}  // namespace hvd::testing
