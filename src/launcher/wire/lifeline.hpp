#pragma once
// A lifeline is the connection by which an agent and horovodrun know whether the other one's host is still there. It
// carries only the kernel's keepalive, so a stopped process is not taken for a dead host. ssh may not notice a dead
// host for hours.
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.hpp"
#include "base/result.hpp"
#include "base/settings/config.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher {

// horovodrun's end of all lifelines. Used by one thread. Its calls never block.
class Lifelines {
 public:
  struct Options {
    std::size_t hosts = 0;
    std::vector<std::string> interfaces;  // interfaces to listen on; empty: all
    PortRange ports;
    std::chrono::milliseconds patience;
  };
  static Result<std::unique_ptr<Lifelines>> open(const Options& options);
  ~Lifelines();

  const std::string& addresses() const;  // addresses for the agents: "10.0.0.3:4711,[fd00::3]:4712", best first
  // The secret by which that agent proves itself. There may be more hosts than Options names: they come later.
  std::string token(std::size_t host) const;
  int descriptor() const;  // readable when serve() has something to do
  struct Loss {
    std::size_t host = 0;
    bool of_agent = false;  // only the agent ended: its host is alive and has closed the connection
  };
  // Returns the lifelines that broke since the last call.
  std::vector<Loss> serve();

 private:
  struct State;
  explicit Lifelines(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The agent's end. Dials all addresses at once and takes the one where horovodrun proves that it knows the token. The
// socket becomes readable when the lifeline breaks. Blocks until the deadline at most.
Result<posix::FileDescriptor> take_lifeline(const std::string& addresses, const std::string& token,
                                            std::chrono::milliseconds patience, Deadline deadline);

}  // namespace hvd::launcher
