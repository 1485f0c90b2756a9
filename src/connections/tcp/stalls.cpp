#include "connections/tcp/stalls.hpp"

#include <sys/socket.h>

#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::connections::tcp {

bool Stalls::add(int socket) {
  bool is_first = !next_deadline();
  stalled_.try_emplace(socket);
  if (is_first) next_step_ = Clock::now() + period();
  return is_first;
}

void Stalls::step(Clock::time_point now) {
  if (stalled_.empty() || now < next_step_) return;
  next_step_ = now + period();
  for (auto entry = stalled_.begin(); entry != stalled_.end();) {
    auto& [socket, stall] = *entry;
    if (stall.is_over) {
      ++entry;
      continue;
    }
    auto state = posix::sending_state(socket);
    if (!state || !state->has_unsent) {
      if (stall.is_lifted) posix::set_patience_with_unanswered_data(socket, patience_);
      entry = stalled_.erase(entry);
      continue;
    }
    if (!stall.is_lifted) {
      posix::set_patience_with_unanswered_data(socket, std::chrono::milliseconds(0));
      stall.is_lifted = true;
    }
    // Two looks are needed, because a single look may fall between a packet and its acknowledgement.
    stall.unanswered_looks = state->is_unanswered ? stall.unanswered_looks + 1 : 0;
    if (stall.unanswered_looks >= 2 && state->since_last_answer > patience_) {
      stall.is_over = true;
      ::shutdown(socket, SHUT_RDWR);
    }
    ++entry;
  }
}

std::optional<Clock::time_point> Stalls::next_deadline() const {
  for (const auto& [socket, stall] : stalled_)
    if (!stall.is_over) return next_step_;
  return std::nullopt;
}

}  // namespace hvd::connections::tcp
