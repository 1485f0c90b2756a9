#include "launcher/agent/rank_streams.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hvd::launcher {

void RankInput::add(const Input& input) {
  waiting_ += input.bytes;
  has_ended_ = has_ended_ || input.is_last;
}

void RankInput::add_to(std::vector<pollfd>& polled, const RankProcess& rank) const {
  if (rank.input) polled.push_back({rank.input.get(), static_cast<short>(waiting_.empty() ? 0 : POLLOUT), 0});
}

void RankInput::relay(RankProcess& rank, HorovodrunChannel& channel) {
  if (!rank.input) return;
  pollfd reader{rank.input.get(), 0, 0};
  if (::poll(&reader, 1, 0) > 0 && (reader.revents & POLLERR) != 0) {  // the rank does not read its input any more
    rank.input.reset();
    channel.send(InputTaken{0, true});
    return;
  }
  while (!waiting_.empty()) {
    ssize_t count = ::write(rank.input.get(), waiting_.data(), waiting_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return;  // the reader of the rank's input has just ended
    waiting_.erase(0, static_cast<std::size_t>(count));
    channel.send(InputTaken{static_cast<std::uint32_t>(count), false});
  }
  if (waiting_.empty() && has_ended_) rank.input.reset();
}

void RankOutput::add_to(std::vector<pollfd>& polled, const RankProcess& rank) const {
  for (const auto& pipe : rank.output)
    if (pipe && may_relay()) polled.push_back({pipe.get(), POLLIN, 0});
}

bool RankOutput::relay(RankProcess& rank, HorovodrunChannel& channel) {
  bool any = false;
  for (Stream stream : {Stream::standard_output, Stream::standard_error}) {
    auto& pipe = rank.output[static_cast<std::size_t>(stream)];
    if (!pipe || !may_relay()) continue;
    std::size_t size = is_wanted_ ? std::min<std::size_t>(chunk_.size(), credit_) : chunk_.size();
    ssize_t count = ::read(pipe.get(), chunk_.data(), size);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    any = true;
    if (count <= 0) {
      pipe.reset();
    } else if (is_wanted_) {
      credit_ -= static_cast<std::uint32_t>(count);
      channel.send(Output{rank.rank, stream, std::string(chunk_.data(), static_cast<std::size_t>(count))});
    }
  }
  return any;
}

}  // namespace hvd::launcher
