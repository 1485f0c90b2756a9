#pragma once
// Our standard input for a rank on another host.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "launcher/messages.hpp"

namespace hvd::launcher {

class InputRelay {
 public:
  void open() { is_open_ = true; }
  // For poll(); nothing happens while the other end has enough.
  pollfd wanted() const { return {is_open_ && window_ > 0 ? STDIN_FILENO : -1, POLLIN, 0}; }
  void hear(const InputTaken& taken) {
    window_ += taken.bytes;
    if (taken.is_closed) is_open_ = false;
  }
  // What there is to read now; call it when poll() says so.
  std::optional<Input> read();

 private:
  bool is_open_ = false;
  std::uint32_t window_ = input_window_bytes;
};

inline std::optional<Input> InputRelay::read() {
  std::vector<char> chunk(std::min<std::uint32_t>(window_, 64 << 10));
  ssize_t count = ::read(STDIN_FILENO, chunk.data(), chunk.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return std::nullopt;
  if (count <= 0) {  // also a terminal that we may not read from, being in the background
    is_open_ = false;
    return Input{"", true};
  }
  window_ -= static_cast<std::uint32_t>(count);
  return Input{std::string(chunk.data(), static_cast<std::size_t>(count)), false};
}

}  // namespace hvd::launcher
