#pragma once
// The store (seats.hpp) for ranks on many hosts, over TCP with the job's secret (sealed_stream.hpp). Its owner's loop
// polls it, as with the local store; or it has a thread of its own.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/result.hpp"

namespace hvd::bootstrap {

// Used by one thread. Never blocks.
class TcpStoreServer {
 public:
  struct Options {
    std::string job;  // handed to the ranks as Identity::job
    int size = 1;
    std::string secret;           // at least 16 bytes
    std::int64_t first_port = 0;  // a range; 0: the kernel chooses
    std::int64_t last_port = 0;
    // Names of the interfaces to listen on; empty: all. addresses() has their addresses.
    std::vector<std::string> interfaces;
    // A rank asked for the end of the job. Called inside of serve() or rank_ended().
    std::function<void(Rank, std::string_view reason)> on_abort;
  };
  static Result<std::unique_ptr<TcpStoreServer>> open(Options options);
  ~TcpStoreServer();

  // "10.0.0.3,192.168.7.1,[fd00::3]": addresses of this host, best first, the loopback's last.
  const std::string& addresses() const;
  std::uint16_t port() const;
  // The variables by which ranks find the store: (name, value). They must not go into a command line: the secret is
  // among them.
  std::vector<std::pair<std::string, std::string>> variables() const;
  // Readable when serve() has something to do. Close-on-exec; goes into the owner's poll().
  int descriptor() const;
  void serve();
  // Nobody is in who could ask for something.
  bool is_idle() const;
  // The owner saw the process of a rank end ("exited with code 3"). Harmless for a rank that has done its part.
  void rank_ended(Rank rank, std::string_view how);

 private:
  struct State;
  explicit TcpStoreServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A server and the thread that serves it, until all who are in have left, or for some seconds.
class TcpStoreThread {
 public:
  static Result<std::unique_ptr<TcpStoreThread>> start(TcpStoreServer::Options options);
  ~TcpStoreThread();
  TcpStoreThread(const TcpStoreThread&) = delete;
  TcpStoreThread& operator=(const TcpStoreThread&) = delete;
  const TcpStoreServer& server() const { return *server_; }

 private:
  TcpStoreThread() = default;
  std::unique_ptr<TcpStoreServer> server_;
  int stop_ = -1;
  std::thread thread_;
};

}  // namespace hvd::bootstrap
