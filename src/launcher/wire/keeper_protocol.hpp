#pragma once
// What horovodrun and the keeper of a rank say to each other through a site's launcher: the rank's command on the way
// there, packets of its output on the way back, and with some launchers packets of its input. It is written so that
// no launcher takes part of it for its own words.
//
// A packet is one line, and so short that no launcher cuts or loses a part of it: srun puts a new label after each
// 1024 bytes; orterun loses what its labels make longer than 8192 bytes from a read of 4096; all of them put a label
// before whatever they read in one go, which may be the middle of a line. So the line ends of the rank are hidden in
// the packet.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/wire/messages.hpp"

namespace hvd::launcher {

// Launchers take the word ":" anywhere for the beginning of another program. So it travels as "\:", and "\:" travels
// as "\\:".
std::string hide(const std::string& word);
std::string_view unhide(std::string_view word);

inline constexpr std::size_t longest_packet = 1000, shortest_packet = 32;
// Calls emit(packet) for each of those that carry `bytes`.
void pack(std::string_view bytes, const std::function<void(std::string_view)>& emit);

// Before a packet, where the launcher has no label of its own for the lines of a rank, or one that is not known.
std::string label_of(int rank);
struct LabelRead {
  int rank = 0;
  std::string_view text;  // what comes after it
};
// Whatever the launcher put before the label is passed over. Nothing if there is none.
std::optional<LabelRead> read_label(std::string_view line);

// How the rank ended; it travels in a packet of its standard error.
struct RankReport {
  int process = 0;
  int wait_status = 0;
  bool was_asked = false;  // it had been told to end before
  std::int64_t at_ns = 0;  // by the host's clock
  std::string host;
};
std::string packet_of(const RankReport& report);

// Input for rank 0 travels in packets under two launchers. Hydra ends if a rank reads more slowly than Hydra writes,
// and never ends the input of the other ranks. PRRTE 3 loses messages of 4096 bytes and more on their way to another
// host, and does not pass on the end. No more bytes than this are under way; the keeper tells in its standard error
// how many the rank has taken. The end is sent after the rank has taken all.
inline constexpr std::uint32_t packed_input_window = 1500;
extern const std::string_view end_of_input;
std::string packet_of(const InputTaken& taken);

// The content of a line, its end included. Bytes outside of a packet stay as they came: some ranks have no keeper,
// and on some hosts it cannot start.
struct Unpacked {
  std::string bytes;
  std::optional<RankReport> report{};
  std::optional<InputTaken> taken{};
  bool is_end_of_input = false;
};
Unpacked unpack(std::string line);

}  // namespace hvd::launcher
