#pragma once
// Passes our standard input to the rank that reads it. This is always done for a rank on another host. It is done for a
// rank on this host if the input travels in packets, or is a terminal. Ranks are not in the session of the terminal, so
// the kernel would let them read while another program is in the terminal's foreground.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <vector>

#include "launcher/wire/keeper_protocol.hpp"
#include "launcher/wire/messages.hpp"

namespace hvd::launcher {

class InputRelay {
 public:
  explicit InputRelay(bool packs) : packs_(packs) {}
  // True if the rank gets its input through us even if it is on this host.
  bool is_ours() const { return is_terminal_ || packs_; }
  void open() { is_open_ = true; }
  // Returns what to poll(): nothing while the other end has enough, or while another program reads the terminal.
  pollfd wanted() const { return {is_wanted() && !is_in_background() ? STDIN_FILENO : -1, POLLIN, 0}; }
  // No event tells us that a shell has put us into the foreground. Therefore we check again after this time.
  std::chrono::milliseconds left() const {
    if (is_end_due()) return std::chrono::milliseconds(0);
    return is_wanted() && is_in_background() ? between_looks : std::chrono::hours(1);
  }
  // Under a site's launcher the input has arrived when the keeper reports it, not when the agent reports it.
  enum class By { agent, keeper };
  void note_taken(const InputTaken& taken, By by) {
    if (packs_ == (by == By::keeper)) in_flight_ -= std::min(in_flight_, taken.bytes);
    if (taken.is_closed) is_open_ = false;
  }
  // True if all input has arrived and no more comes.
  bool is_end_due() const { return is_open_ && has_ended_ && in_flight_ == 0; }
  // Reads what is there. Call it when poll() reports input, and when the end is due.
  std::optional<Input> read();

 private:
  Input end();
  static constexpr std::chrono::milliseconds between_looks{200};
  bool is_wanted() const { return is_open_ && !has_ended_ && in_flight_ < window_; }
  // False for a terminal that is not the controlling one: any process may read that.
  bool is_in_background() const {
    pid_t foreground = is_terminal_ ? ::tcgetpgrp(STDIN_FILENO) : -1;
    return foreground >= 0 && foreground != ::getpgrp();
  }

  const bool packs_;
  const bool is_terminal_ = ::isatty(STDIN_FILENO) == 1;
  const std::uint32_t window_ = packs_ ? packed_input_window : input_window_bytes;
  std::uint32_t in_flight_ = 0;
  bool is_open_ = false, has_ended_ = false;
};

inline std::optional<Input> InputRelay::read() {
  if (is_end_due()) return end();
  std::vector<char> chunk(std::min<std::uint32_t>(window_ - in_flight_, 64 << 10));
  ssize_t count = ::read(STDIN_FILENO, chunk.data(), chunk.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return std::nullopt;
  // this process was put into the background just now
  if (count < 0 && errno == EIO && is_in_background()) return std::nullopt;
  if (count <= 0) {
    has_ended_ = true;
    return packs_ && in_flight_ > 0 ? std::nullopt : std::optional(end());
  }
  in_flight_ += static_cast<std::uint32_t>(count);
  std::string bytes(chunk.data(), static_cast<std::size_t>(count));
  if (!packs_) return Input{std::move(bytes), false};
  std::string packets;
  pack(bytes, [&](std::string_view packet) { packets += packet; });
  return Input{std::move(packets), false};
}

inline Input InputRelay::end() {
  is_open_ = false;
  return {packs_ ? std::string(end_of_input) : std::string(), true};
}

}  // namespace hvd::launcher
