#pragma once
// A rank's output on its way into a site's launcher: in packets (keeper_protocol.hpp), each in a write that pipes do
// not split.
#include <poll.h>
#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "launcher/console/output.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::launcher {

class PackedOutput {
 public:
  // `to` is borrowed. The label (keeper_protocol.hpp) stands before each packet; it may be empty.
  static Result<PackedOutput> open(int to, std::string label);

  // What the rank writes to. Close it here once the rank has it.
  posix::FileDescriptor& rank_end() { return rank_end_; }
  int source() const { return from_.get(); }
  int target() const { return sink_.descriptor(); }
  void add_to(std::vector<pollfd>& polled) const;
  // Moves on what can be moved without waiting.
  void relay();
  // A packet of the keeper's.
  void send(std::string_view packet);
  // Call it after the end of the rank: reads what the rank wrote last, then sends a packet of the keeper's.
  void finish(std::string_view own_packet = {});
  // True if nothing waits to be written, or nobody reads.
  bool is_written() const { return sink_.broken() || (units_.empty() && sink_.pending() == 0); }

 private:
  PackedOutput(posix::FileDescriptor from, posix::FileDescriptor rank_end, int to, std::string label);
  ssize_t read();
  void add(std::string_view packet);
  void write();

  posix::FileDescriptor from_, rank_end_;
  Sink sink_;
  std::string label_;
  std::deque<std::string> units_;  // packets, as many as a pipe takes at once
  std::size_t waiting_ = 0;        // bytes of them
};

}  // namespace hvd::launcher
