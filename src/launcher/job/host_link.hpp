#pragma once
// The agent of one host as horovodrun sees it: the process that leads to the agent (the agent itself on this host, ssh
// to another host), the stream of messages, and the state that the agent has reached.
#include <sys/types.h>

#include <string>
#include <vector>

#include "launcher/agent/agent.hpp"
#include "launcher/console/output.hpp"
#include "launcher/wire/channel.hpp"

namespace hvd::launcher {

struct HostLink {
  enum class State {
    waiting,      // no command was started for this host yet
    reached_for,  // a command that leads to the host runs, but the agent is not ready
    ready,
    gone,  // nothing of the job is left on the host, or nobody can tell
  };
  std::string name;
  bool is_here = false;
  pid_t process = 0;  // the process that leads to the agent; 0: it was reaped
  int wait_status = 0;
  AgentChannel channel;
  posix::FileDescriptor errors;  // what ssh and the shell on the host complain about
  std::string complaints;        // all complaints until the host is ready; afterwards only the unfinished line
  State state = State::reached_for;
  std::string trial;  // a command that shows the user whether the host can be reached; empty: by ssh
  std::string node_id;
  std::vector<Rank> ranks;
  std::uint32_t owed_credit = 0;
  bool was_asked = false;      // Ask was sent, and the answer has not come yet
  bool is_taken_over = false;  // the agent of this machine was killed, and horovodrun has adopted its children

  bool is_ready() const { return state == State::ready; }
  bool is_gone() const { return state == State::gone; }
  void be_gone() { state = State::gone; }
  // Sends a signal to the process that leads to the agent, and to what it has started on this machine.
  void signal_way(int signal) const;
  void send(const Order& order);    // sends at once as much as the stream takes
  void note(const Report& report);  // keeps what the report tells about the link itself
  // Checks whether the process that leads to the agent has ended, and keeps its wait status.
  void reap();
  bool is_cut() const { return state != State::waiting && (channel.closed() || process == 0); }
  bool is_waiting() const { return state == State::waiting; }
  // Reads new complaints. Returns whole lines for the user; returns none before the host is ready.
  std::vector<std::string> read_complaints();
  // Explains why a host could not be used whose stream ended before the host was ready. `program` is the program that
  // was to be started there.
  std::string why_not(const std::string& program) const;
  std::string how_to_try() const;
  // Returns the text for a host that is not gone although the end was ordered `waited` ago.
  std::string why_not_gone(std::chrono::milliseconds waited) const;
};

// Runs the command (ssh and its arguments); its standard input and output become the channel. The command has a session
// of its own and ends when we end. The caller has a single thread.
Result<HostLink> reach_host(const std::string& name, const std::vector<std::string>& command,
                            const Inheritance& inheritance);

}  // namespace hvd::launcher
