#pragma once
// What horovodrun and the keeper of a rank say to each other through a site's launcher, which understands some of it
// as its own: the rank's command on the way there, packets of what it writes on the way back, and under some of what
// it reads.
//
// A packet is one line, of a length that no launcher cuts, adds to until it overflows or takes for two: srun labels
// after each 1024 bytes anew, orterun loses what its labels make longer than 8192 from a read of 4096, all of them
// put a label before whatever they happen to read in one go, which may be the middle of a line. So the rank's own
// line ends are hidden in it.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/wire/messages.hpp"

namespace hvd::launcher {

// Launchers take the word ":" for the beginning of another program, wherever it stands: it travels as "\:", and that
// as "\\:".
std::string hide(const std::string& word);
std::string_view unhide(std::string_view word);

inline constexpr std::size_t longest_packet = 1000, shortest_packet = 32;
// Calls emit(packet) for each of those that carry `bytes`.
void pack(std::string_view bytes, const std::function<void(std::string_view)>& emit);

// How the rank ended, in a packet of its standard error.
struct RankReport {
  int process = 0;
  int wait_status = 0;
  bool was_asked = false;  // it had been told to end before
  std::int64_t at_ns = 0;  // by the host's clock
  std::string host;
};
std::string packet_of(const RankReport& report);

// Input for rank 0 goes as packets under Hydra, which ends when a rank reads more slowly than it writes, and never
// ends that of the other ranks, and under PRRTE 3, which loses messages of 4096 bytes and more on their way to
// another host, and tells nobody the end. No more of it is under way than this; the keeper tells in its standard
// error what the rank has taken. When it has taken all comes the end.
inline constexpr std::uint32_t packed_input_window = 1500;
extern const std::string_view end_of_input;
std::string packet_of(const InputTaken& taken);

// What came as a line, its end included. Bytes before the packet, or without one, are as they came: there are ranks
// without a keeper, and hosts where it cannot start.
struct Unpacked {
  std::string bytes;
  std::optional<RankReport> report{};
  std::optional<InputTaken> taken{};
  bool is_end_of_input = false;
};
Unpacked unpack(std::string line);

}  // namespace hvd::launcher
