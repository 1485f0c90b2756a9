#pragma once
// What horovodrun and the agent of a host say to each other, and the stream that carries it. Only bytes, no
// descriptors, so that the same stream can run through a socket on this host or through ssh to another.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"
#include "base/result.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::launcher {

enum class Stream : std::uint8_t { standard_output, standard_error };

// Orders to the agent.
struct Launch {
  Rank rank;
  std::string program;                   // path to execute
  std::vector<std::string> command;      // its arguments, from the name on that the user gave it
  std::vector<std::string> environment;  // NAME=value, all of it
  std::string folder;                    // to start in
  std::vector<std::int32_t> cpus;        // to run on; empty: wherever the agent may
  bool inherits_input = false;           // gets the agent's standard input; else /dev/null
};
struct Forward {  // to the process group of every rank
  std::int32_t signal = 0;
};
struct End {  // ends every process below the agent: first this signal, after the grace SIGKILL
  std::int32_t signal = 0;
  std::int32_t grace_ms = 0;
};
struct Credit {  // the agent may send that many bytes of output more
  std::uint32_t bytes = 0;
};
struct Dismiss {};  // all is done and cleaned up

// Reports of the agent.
struct Started {
  Rank rank;
  std::int32_t process = 0;
};
struct NotStarted {  // counts as an end, too
  Rank rank;
  std::int32_t error = 0;  // errno; 0: `step` says it all
  std::string step;        // what failed
};
struct Output {
  Rank rank;
  Stream stream = Stream::standard_output;
  std::string bytes;
};
struct Exited {
  Rank rank;
  std::int32_t wait_status = 0;
  // The memory control group, as far as it could be read: how often the out-of-memory killer struck since the start.
  bool group_known = false;
  std::uint64_t oom_kills = 0;
  std::uint64_t limit_bytes = 0;  // 0: none
  std::string group;
};
struct Stopped {  // it does nothing until somebody continues it
  Rank rank;
  std::int32_t signal = 0;
};
struct Told {  // the agent itself got this signal and asks for the end of the job
  std::int32_t signal = 0;
};
struct AllGone {};  // after End: no process is left and all of their output was sent

using Message =
    std::variant<Launch, Forward, End, Credit, Dismiss, Started, NotStarted, Output, Exited, Stopped, Told, AllGone>;

void encode(const Message& message, Buffer& out);   // appends one frame's content
std::optional<Message> decode(ConstBytes content);  // nothing: malformed

// One end of the stream. Never blocks; the owner polls descriptor() for wants().
class Channel {
 public:
  Channel() = default;
  explicit Channel(posix::FileDescriptor descriptor);  // made non-blocking

  int descriptor() const noexcept { return descriptor_.get(); }
  short wants() const noexcept;  // poll events

  void send(const Message& message);  // queues; flush() or pump() moves it
  void flush();
  // Reads what has come and writes what is queued. Returns the messages; closed() tells whether the other end is gone.
  std::vector<Message> pump();
  bool closed() const noexcept { return closed_; }
  void close() {
    descriptor_.reset();
    closed_ = true;
  }

 private:
  posix::FileDescriptor descriptor_;
  Buffer incoming_, outgoing_;
  std::size_t sent_ = 0;  // of outgoing_
  bool closed_ = false;
};

// Bytes of output that an agent may have under way before it waits for Credit.
inline constexpr std::uint32_t output_window_bytes = 1 << 20;

}  // namespace hvd::launcher
