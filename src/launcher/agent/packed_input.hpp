#pragma once
// A rank's input that comes in packets (keeper_protocol.hpp).
#include <poll.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "launcher/wire/messages.hpp"
#include "native/posix/file_descriptor.hpp"

namespace hvd::launcher {

class PackedInput {
 public:
  // Of this process's standard input, which is borrowed no more.
  static Result<PackedInput> open();

  // What the rank reads from. Close it here once the rank has it.
  posix::FileDescriptor& rank_end() { return rank_end_; }
  int source() const { return from_.get(); }
  int target() const { return to_.get(); }
  void add_to(std::vector<pollfd>& polled) const;
  // Moves on what can be moved without waiting. Returns what horovodrun is to know of it, if there is anything.
  std::optional<InputTaken> relay();

 private:
  PackedInput(posix::FileDescriptor from, posix::FileDescriptor rank_end, posix::FileDescriptor to);
  void read();

  posix::FileDescriptor from_, rank_end_, to_;
  std::string packet_;   // what has come of it
  std::string waiting_;  // for the rank to take it
  bool has_ended_ = false;
};

}  // namespace hvd::launcher
