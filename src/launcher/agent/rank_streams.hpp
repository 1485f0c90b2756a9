#pragma once
// The standard input and output of a host's ranks, which pass through the agent.
#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/agent/rank_process.hpp"
#include "launcher/wire/channel.hpp"

namespace hvd::launcher {

// The input that horovodrun sends to the one rank that reads it.
class RankInput {
 public:
  void add(const Input& input);
  void add_to(std::vector<pollfd>& polled, const RankProcess& rank) const;
  // Writes what the rank takes without waiting, and tells horovodrun how much the rank took.
  void relay(RankProcess& rank, HorovodrunChannel& channel);

 private:
  std::string waiting_;
  bool has_ended_ = false;
};

// The output of ranks on its way to horovodrun. It is read only as far as horovodrun has room for it.
class RankOutput {
 public:
  void give_credit(std::uint32_t bytes) { credit_ += bytes; }
  void throw_away() { is_wanted_ = false; }  // nobody prints the output any more; it is read, so that no rank waits
  bool may_relay() const noexcept { return !is_wanted_ || credit_ > 0; }
  void add_to(std::vector<pollfd>& polled, const RankProcess& rank) const;
  // Passes on one chunk of each pipe that has output. True if there was any.
  bool relay(RankProcess& rank, HorovodrunChannel& channel);

 private:
  bool is_wanted_ = true;
  std::uint32_t credit_ = output_window_bytes;
  std::vector<char> chunk_ = std::vector<char>(64 << 10);
};

}  // namespace hvd::launcher
