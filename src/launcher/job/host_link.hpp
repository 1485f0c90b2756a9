#pragma once
// The agent of one host as horovodrun sees it: the process that leads to it (the agent itself on this host, ssh to
// another), the stream of messages, and how far it has come.
#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/agent/agent.hpp"
#include "launcher/console/output.hpp"
#include "launcher/wire/channel.hpp"

namespace hvd::launcher {

struct HostLink {
  enum class State {
    waiting,      // its turn has not come
    reached_for,  // a command leads there, but the agent is not ready
    ready,
    gone,  // nothing of the job is left there, or nobody can tell any more
  };
  std::string name;
  bool is_here = false;
  pid_t process = 0;  // 0: reaped
  int wait_status = 0;
  AgentChannel channel;
  posix::FileDescriptor errors;  // what ssh and the shell there complain about
  std::string complaints;        // all of it, until the host is ready; then the unfinished line
  State state = State::reached_for;
  std::string trial;  // a command by which the user sees whether the host can be reached; empty: by ssh
  std::string node_id;
  std::vector<Rank> ranks;
  std::uint32_t owed_credit = 0;
  bool was_asked = false;      // by Ask, and has not answered yet
  bool is_taken_over = false;  // the agent of this machine was killed: what was below it is below us

  bool is_ready() const { return state == State::ready; }
  bool is_gone() const { return state == State::gone; }
  void be_gone() { state = State::gone; }
  void tell(const Order& order);    // sends at once what the stream takes
  void note(const Report& report);  // keeps what the report tells about the link itself
  // Looks whether the process that leads to the agent has ended, and keeps its wait status.
  void reap();
  bool is_cut() const { return state != State::waiting && (channel.closed() || process == 0); }
  bool is_waiting() const { return state == State::waiting; }
  // Reads new complaints. Returns whole lines for the user; none before the host is ready.
  std::vector<std::string> read_complaints();
  // Why a host whose stream ended before it was ready could not be used; `program` is what was to be started there.
  std::string why_not(const std::string& program) const;
  std::string how_to_try() const;
  // The text for a host that is not gone although the end was ordered that long ago.
  std::string why_not_gone(std::chrono::milliseconds waited) const;
};

// Runs the command (ssh and its arguments); its standard input and output become the channel. It has a session of its
// own and ends when we do. The caller has a single thread.
Result<HostLink> reach_host(const std::string& name, const std::vector<std::string>& command,
                            const Inheritance& inheritance);

}  // namespace hvd::launcher
