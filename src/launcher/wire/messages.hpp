#pragma once
// What horovodrun and the agent of a host say to each other; channel.hpp carries it. Messages hold only bytes and no
// descriptors, so they can travel through a socket on this host or through ssh to another host.
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bytes.hpp"
#include "base/ids.hpp"

namespace hvd::launcher {

enum class Stream : std::uint8_t { standard_output, standard_error };

// Orders to the agent.
struct Prepare {           // the first order that an agent gets
  std::int32_t ranks = 0;  // the number of ranks that this host will get
  std::int32_t grace_ms = 0;
  bool tells_bindings = false;
  std::string lifeline;  // the address of horovodrun (lifeline.hpp); empty on its own host
  std::string lifeline_token;
  std::int32_t lifeline_patience_ms = 0;
  std::int32_t dial_ms = 0;  // the time in which horovodrun must have been reached
};
enum class InputFrom : std::uint8_t { nowhere, agent, horovodrun };
struct StartRank {
  Rank rank;
  std::string title;                     // for messages: "rank 2", "slot 1 of host n1"
  std::string program;                   // the program that is executed; a name without a slash is looked for along the
                                         // PATH of the rank
  std::vector<std::string> command;      // the arguments of the program; the first one is the program's name as the
                                         // user gave it
  std::vector<std::string> environment;  // the whole environment of the rank, as NAME=value
  std::string folder;                    // the folder in which the rank starts
  std::int32_t local_rank = 0;           // the rank's number on its host, which decides its share of the processors
  InputFrom input = InputFrom::nowhere;
  bool is_site_launcher = false;  // signals go to the launcher only, which passes them on
};
struct Input {  // Bytes of input for the rank that reads horovodrun's input.
  std::string bytes;
  bool is_last = false;
};
struct Ask {};    // the agent answers after it has reported all that it knows
struct Forward {  // Sends a signal to the process group of every rank.
  std::int32_t signal = 0;
};
struct StopRank {  // Sends a signal to the process group of one rank, even if the rank itself has ended.
  Rank rank;
  std::int32_t signal = 0;
};
struct End {  // Ends all processes below the agent: they get this signal at once, and SIGKILL after the grace.
  std::int32_t signal = 0;
  std::int32_t grace_ms = 0;
};
struct Credit {  // the agent may send this number of bytes of output in addition
  std::uint32_t bytes = 0;
};
struct Dismiss {};  // the agent may go: everything is done and cleaned up

// Reports of the agent.
struct Ready {       // The answer to Prepare: the agent can start ranks.
  std::string host;  // the host's own name
  std::string node_id;
  std::int32_t process = 0;
};
struct NotReady {
  std::string reason;
};
struct Said {  // a line to print for the user
  std::string text;
};
struct InputTaken {  // horovodrun may send this number of bytes in addition
  std::uint32_t bytes = 0;
  bool is_closed = false;  // the rank does not read its input any more
};
struct Answered {};
struct Started {
  Rank rank;
  std::int32_t process = 0;
};
struct NotStarted {  // the rank could not be started; this also counts as its end
  Rank rank;
  std::int32_t error = 0;   // the errno of the failure; 0: `step` describes it completely
  std::string step;         // the step of the start that failed
  std::int32_t code = 126;  // the exit code that stands for this failure
};
struct Output {
  Rank rank;
  Stream stream = Stream::standard_output;
  std::string bytes;
};
// EX_TEMPFAIL. A rank that ends with it has saved its training before the end of the job and wants another run of the
// job. This is no failure.
inline constexpr int again_code = 75;
bool wants_another_run(int wait_status);
struct Exited {
  Rank rank;
  std::int32_t wait_status = 0;
  std::int64_t at_ns = 0;  // time of the end, by the clock of the rank's host
  // What the memory control group says, as far as it could be read: how often the out-of-memory killer has struck since
  // the start.
  bool group_known = false;
  std::uint64_t oom_kills = 0;
  std::uint64_t limit_bytes = 0;  // limit of the control group; 0: no limit
  std::string group;
};
struct Stopped {  // the rank does nothing until somebody continues it
  Rank rank;
  std::int32_t signal = 0;
  std::int32_t process = 0;  // number of the rank's process; it is in this report, too, because Started may arrive
                             // later
};
struct Told {  // the agent itself got this signal and asks for the end of the job
  std::int32_t signal = 0;
};
struct AllEnded {};  // All processes have ended after End, and all of their output was sent.

// The receivers visit all orders, or all reports. Therefore a new message does not compile until its receiver handles
// it.
using Order = std::variant<Prepare, StartRank, Input, Ask, Forward, StopRank, End, Credit, Dismiss>;
using Report = std::variant<Ready, NotReady, Said, Started, NotStarted, Output, InputTaken, Answered, Exited, Stopped,
                            Told, AllEnded>;

// `Message` is Order or Report.
template <typename Message>
void encode(const Message& message, Buffer& out);  // appends one frame's content
template <typename Message>
std::optional<Message> decode(ConstBytes content);  // returns nullopt if the message is malformed

// The highest number of bytes under way: of output, that an agent may send before it waits for Credit, and of input,
// that horovodrun may send.
inline constexpr std::uint32_t output_window_bytes = 1 << 20;
inline constexpr std::uint32_t input_window_bytes = 256 << 10;

}  // namespace hvd::launcher
