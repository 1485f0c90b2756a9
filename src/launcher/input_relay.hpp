#pragma once
// Our standard input for a rank on another host; of a terminal also for one on ours. The ranks are in no session of the
// terminal, so the kernel would let them read it while somebody else is in its foreground.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <vector>

#include "launcher/messages.hpp"

namespace hvd::launcher {

class InputRelay {
 public:
  // Whether the rank that reads is to get it through us, wherever it is.
  bool is_of_a_terminal() const { return is_terminal_; }
  void open() { is_open_ = true; }
  // For poll(); nothing happens while the other end has enough, or somebody else reads the terminal.
  pollfd wanted() const { return {is_wanted() && !is_in_background() ? STDIN_FILENO : -1, POLLIN, 0}; }
  // Nobody tells us that a shell has put us into the foreground.
  std::chrono::milliseconds left() const {
    return is_wanted() && is_in_background() ? between_looks : std::chrono::hours(1);
  }
  void hear(const InputTaken& taken) {
    window_ += taken.bytes;
    if (taken.is_closed) is_open_ = false;
  }
  // What there is to read now; call it when poll() says so.
  std::optional<Input> read();

 private:
  static constexpr std::chrono::milliseconds between_looks{200};
  bool is_wanted() const { return is_open_ && window_ > 0; }
  // Of a terminal that is not ours anybody may read.
  bool is_in_background() const {
    pid_t foreground = is_terminal_ ? ::tcgetpgrp(STDIN_FILENO) : -1;
    return foreground >= 0 && foreground != ::getpgrp();
  }

  const bool is_terminal_ = ::isatty(STDIN_FILENO) == 1;
  bool is_open_ = false;
  std::uint32_t window_ = input_window_bytes;
};

inline std::optional<Input> InputRelay::read() {
  std::vector<char> chunk(std::min<std::uint32_t>(window_, 64 << 10));
  ssize_t count = ::read(STDIN_FILENO, chunk.data(), chunk.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return std::nullopt;
  if (count < 0 && errno == EIO && is_in_background()) return std::nullopt;  // just now
  if (count <= 0) {
    is_open_ = false;
    return Input{"", true};
  }
  window_ -= static_cast<std::uint32_t>(count);
  return Input{std::string(chunk.data(), static_cast<std::size_t>(count)), false};
}

}  // namespace hvd::launcher
