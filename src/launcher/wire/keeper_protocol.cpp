#include "launcher/wire/keeper_protocol.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/text/number.hpp"

namespace hvd::launcher {
namespace {

// This byte begins a packet. Inside a packet, this byte and a letter stand for a byte that a launcher must not see.
// Programs hardly ever print this byte.
constexpr char escape_byte = '\x10';
constexpr char output_letter = 'o', report_letter = 'r', taken_letter = 't', padding_letter = '.';
constexpr std::string_view label_beginning = "\x10@";

struct Hidden {
  char byte, letter;
};
constexpr Hidden hidden_bytes[] = {{'\n', 'n'}, {'\0', '0'}, {escape_byte, 'e'}, {'<', 'l'}};

// Returns the letter that stands for a byte; 0 if the launcher may see the byte. A rank may print text that looks like
// the tag of a line, "[1,0]<stdout>:"; the launcher must not see such text.
char letter_for(char byte, char before) {
  if (byte == '<' && before != ']') return 0;
  for (const Hidden& each : hidden_bytes)
    if (each.byte == byte) return each.letter;
  return 0;
}

std::string revealed(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != escape_byte) {
      bytes += text[at];
      continue;
    }
    char letter = ++at < text.size() ? text[at] : padding_letter;
    for (const Hidden& each : hidden_bytes)
      if (each.letter == letter) bytes += each.byte;
  }
  return bytes;
}

std::optional<RankReport> report_in(const std::string& text) {
  std::istringstream words(text);
  RankReport report;
  std::string process, wait_status, asked, at, host;
  words >> process >> report.process >> wait_status >> report.wait_status >> asked >> report.was_asked >> at >>
      report.at_ns >> host >> report.host;
  return words ? std::optional(std::move(report)) : std::nullopt;
}

std::optional<InputTaken> taken_in(const std::string& text) {
  std::istringstream words(text);
  InputTaken taken;
  words >> taken.bytes >> taken.is_closed;
  return words ? std::optional(taken) : std::nullopt;
}

}  // namespace

std::string escape_colon(const std::string& word) {
  bool is_taken = word.ends_with(':') && word.find_first_not_of('\\') == word.size() - 1;
  return is_taken ? "\\" + word : word;
}

std::string_view unescape_colon(std::string_view word) {
  bool is_escaped = word.size() > 1 && word.ends_with(':') && word.find_first_not_of('\\') == word.size() - 1;
  return is_escaped ? word.substr(1) : word;
}

void pack(std::string_view bytes, const std::function<void(std::string_view)>& emit) {
  std::string packet;
  char before = 0;
  auto end = [&] {
    while (packet.size() + 1 < shortest_packet) packet.append({escape_byte, padding_letter});
    emit(packet += '\n');
    packet.clear();
  };
  for (char byte : bytes) {
    if (packet.empty()) packet = {escape_byte, output_letter};
    if (char letter = letter_for(byte, before); letter != 0) packet.append({escape_byte, letter});
    else packet += byte;
    before = byte;
    if (packet.size() + 3 > longest_packet) end();
  }
  if (!packet.empty()) end();
}

std::string label_of(int rank) {
  return std::string(label_beginning) + std::to_string(rank) + ' ';
}

std::optional<LabelRead> read_label(std::string_view line) {
  std::size_t at = line.find(label_beginning);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + label_beginning.size());
  auto rank = take_number<int>(line);
  if (!rank || *rank < 0 || !line.starts_with(' ')) return std::nullopt;
  return LabelRead{*rank, line.substr(1)};
}

std::string packet_of(const RankReport& report) {
  std::ostringstream text;
  text << escape_byte << report_letter << "process " << report.process << " wait-status " << report.wait_status
       << " asked " << report.was_asked << " at " << report.at_ns << " host " << report.host << '\n';
  return std::move(text).str();
}

const std::string_view end_of_input = "\x10z\n";

std::string packet_of(const InputTaken& taken) {
  std::ostringstream text;
  text << escape_byte << taken_letter << taken.bytes << ' ' << taken.is_closed << '\n';
  return std::move(text).str();
}

Unpacked unpack(std::string line) {
  if (line == end_of_input) return {"", {}, {}, true};
  std::size_t at = std::min(line.find(escape_byte), line.size());
  if (at + 1 >= line.size()) return {std::move(line)};
  std::string content = line.substr(at + 2);
  if (content.ends_with('\n')) content.pop_back();
  if (line[at + 1] == output_letter) return {line.substr(0, at) + revealed(content)};
  if (line[at + 1] == report_letter)
    if (auto report = report_in(content)) return {line.substr(0, at), std::move(report)};
  if (line[at + 1] == taken_letter)
    if (auto taken = taken_in(content)) return {line.substr(0, at), {}, taken};
  return {std::move(line)};
}

}  // namespace hvd::launcher
