#pragma once
// What horovodrun and the keeper of a rank say to each other through a site's launcher: the rank's command in one
// direction, packets of its output in the other direction, and with some launchers packets of its input. The protocol
// is written so that no launcher takes a part of it for its own words.
//
// A packet is one line, and so short that no launcher cuts it or loses a part of it. srun puts a new label after each
// 1024 bytes. orterun reads 4096 bytes, adds its labels, and loses what exceeds 8192 bytes then. All launchers put a
// label before the result of each read, which may begin in the middle of a line. Therefore the line ends of the rank
// are hidden in the packet.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/wire/messages.hpp"

namespace hvd::launcher {

// Launchers take the word ":" anywhere for the beginning of another program. Therefore ":" travels as "\:", and "\:"
// travels as "\\:".
std::string escape_colon(const std::string& word);
std::string_view unescape_colon(std::string_view word);

inline constexpr std::size_t longest_packet = 1000, shortest_packet = 32;
// Calls emit(packet) for each of the packets that carry `bytes`.
void pack(std::string_view bytes, const std::function<void(std::string_view)>& emit);

// Returns the label before a packet. It is used if the launcher puts no label before the lines of a rank, or a label
// that is not known.
std::string label_of(int rank);
struct LabelRead {
  int rank = 0;
  std::string_view text;  // the text after the label
};
// Finds the label in a line, whatever the launcher put before it. Returns nullopt if there is no label.
std::optional<LabelRead> read_label(std::string_view line);

// How the rank ended. The report travels in a packet of the rank's standard error.
struct RankReport {
  int process = 0;
  int wait_status = 0;
  bool was_asked = false;  // true if the rank had been told to end before it ended
  std::int64_t at_ns = 0;  // time of the end, by the clock of the rank's host
  std::string host;
};
std::string packet_of(const RankReport& report);

// Input for rank 0 travels in packets under two launchers. Hydra fails if a rank reads more slowly than Hydra writes,
// and never ends the input of the other ranks. PRRTE 3 loses messages of 4096 bytes and more on their way to another
// host, and does not pass on the end of the input. At most this number of bytes is under way; the keeper reports in the
// rank's standard error how many bytes the rank has taken. The end is sent after the rank has taken all bytes.
inline constexpr std::uint32_t packed_input_window = 1500;
extern const std::string_view end_of_input;
std::string packet_of(const InputTaken& taken);

// The content of a line, its end included. Bytes outside of a packet stay as they came: some ranks have no keeper, and
// on some hosts the keeper cannot start.
struct Unpacked {
  std::string bytes;
  std::optional<RankReport> report{};
  std::optional<InputTaken> taken{};
  bool is_end_of_input = false;
};
Unpacked unpack(std::string line);

}  // namespace hvd::launcher
