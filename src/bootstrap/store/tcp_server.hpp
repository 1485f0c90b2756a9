#pragma once
// The store (seats.hpp) for ranks on many hosts, over TCP with the job's secret (sealed_stream.hpp). Its owner's loop
// polls it, as with the local store. TcpStoreThread gives it a thread of its own.
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
#include "bootstrap/store/generations.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::bootstrap {

// Used by one thread. Its calls never block.
class TcpStoreServer {
 public:
  struct Options {
    std::string job;              // handed to the ranks as Identity::job
    int size = 1;                 // 0: the ranks come and go (generations.hpp)
    std::string secret;           // the job's secret, at least 16 bytes
    std::int64_t first_port = 0;  // first of a range; 0: the kernel chooses
    std::int64_t last_port = 0;
    // The names of the interfaces to listen on; all interfaces if empty. addresses() returns the addresses of these
    // interfaces.
    std::vector<std::string> interfaces;
    // Called when a rank asks for the end of the job. The call comes from inside serve() or rank_ended().
    std::function<void(Rank, std::string_view reason)> on_abort;
    // Called by serve() when a process asks for a place in the next generation.
    std::function<void(const AskForPlace&)> on_ask{};
    bool takes_visitors = false;  // processes that are no ranks may put and get values here (pieces.hpp)
  };
  static Result<std::unique_ptr<TcpStoreServer>> open(Options options);
  ~TcpStoreServer();

  // Returns addresses of this host like "10.0.0.3,192.168.7.1,[fd00::3]". The best address comes first, the loopback's
  // last.
  const std::string& addresses() const;
  std::uint16_t port() const;
  // The variables by which ranks find the store, as pairs of name and value. They must not be put into a command line,
  // because the secret is among them.
  std::vector<std::pair<std::string, std::string>> variables() const;
  // The descriptor is readable when serve() has something to do. The owner adds it to its poll(). It is close-on-exec.
  int descriptor() const;
  void serve();
  // True if no rank is connected that could ask for something.
  bool is_idle() const;
  // Called when the owner saw the process of a rank end. `how` is a text like "exited with code 3". The call does no
  // harm for a rank that has done its part.
  void rank_ended(Rank rank, std::string_view how);
  // For ranks that come and go: the generations, to begin one.
  StoreGenerations& generations();

 private:
  struct State;
  explicit TcpStoreServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A server with a thread that serves it. The destructor waits until all ranks that are in have left, or for some
// seconds.
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
  posix::FileDescriptor stop_;
  std::thread thread_;
};

}  // namespace hvd::bootstrap
