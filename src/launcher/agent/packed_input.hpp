#pragma once
// The input of a rank that arrives in packets (keeper_protocol.hpp).
#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "launcher/wire/messages.hpp"
#include "native/posix/files/file_descriptor.hpp"

namespace hvd::launcher {

class PackedInput {
 public:
  // Takes a copy of the descriptor of this process's standard input. The original may be closed then.
  static Result<PackedInput> open();

  // The end of the pipe that the rank reads from. Close it in this process once the rank has it.
  posix::FileDescriptor& rank_end() { return rank_end_; }
  int source() const { return from_.get(); }
  int target() const { return to_.get(); }
  void add_to(std::vector<pollfd>& polled) const;
  // Passes on what can be passed on without waiting. Returns a report for horovodrun if something about the input has
  // changed.
  std::optional<InputTaken> relay();

 private:
  PackedInput(posix::FileDescriptor from, posix::FileDescriptor rank_end, posix::FileDescriptor to);
  void read();

  posix::FileDescriptor from_, rank_end_, to_;
  std::string packet_;   // the part of the packet that has come
  std::string waiting_;  // bytes that wait until the rank takes them
  bool has_ended_ = false;
};

}  // namespace hvd::launcher
