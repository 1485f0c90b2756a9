#pragma once
// The output of a rank on its way into a site's launcher. It travels in packets (keeper_protocol.hpp). Each write to
// the launcher is so small that pipes do not split it.
#include <poll.h>
#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "launcher/console/output.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher {

class PackedOutput {
 public:
  // `to` is borrowed. The label (keeper_protocol.hpp) is written before each packet. It may be empty.
  static Result<PackedOutput> open(int to, std::string label);

  // The end of the pipe that the rank writes to. Close it in this process once the rank has it.
  posix::FileDescriptor& rank_end() { return rank_end_; }
  int source() const { return from_.get(); }
  int target() const { return sink_.descriptor(); }
  void add_to(std::vector<pollfd>& polled) const;
  // Passes on what can be passed on without waiting.
  void relay();
  // Queues a packet from the keeper itself.
  void send(std::string_view packet);
  // Call it after the end of the rank. It reads what the rank wrote last, then sends the keeper's own packet.
  void finish(std::string_view own_packet = {});
  // True if nothing waits to be written, or if nobody reads.
  bool is_written() const { return sink_.broken() || (units_.empty() && sink_.pending() == 0); }

 private:
  PackedOutput(posix::FileDescriptor from, posix::FileDescriptor rank_end, int to, std::string label);
  ssize_t read();
  void add(std::string_view packet);
  void write();

  posix::FileDescriptor from_, rank_end_;
  Sink sink_;
  std::string label_;
  std::deque<std::string> units_;  // packets; each unit has as many as a pipe takes at once
  std::size_t waiting_ = 0;        // number of bytes in units_
};

}  // namespace hvd::launcher
