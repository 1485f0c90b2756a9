#include "bootstrap/pmi/values.hpp"

#include <algorithm>
#include <cstdint>

#include "base/text/number.hpp"

namespace hvd::bootstrap::pmi {
namespace {

// The alphabet of base64 for URLs. It has no blank, no '=' and nothing else that a shell or a parser treats specially.
constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

std::string text_of(ConstBytes bytes) {
  std::string text;
  std::uint32_t bits = 0;
  int count = 0;
  for (std::byte byte : bytes) {
    bits = bits << 8 | std::to_integer<std::uint32_t>(byte);
    for (count += 8; count >= 6; count -= 6) text += digits[bits >> (count - 6) & 63];
  }
  if (count > 0) text += digits[bits << (6 - count) & 63];
  return text;
}

bool append_bytes_of(std::string_view text, Buffer& bytes) {
  std::uint32_t bits = 0;
  int count = 0;
  for (char digit : text) {
    std::size_t value = digits.find(digit);
    if (value == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<std::byte>(bits >> count & 255));
  }
  return true;
}

bool is_plain(std::string_view key) {
  return key.size() <= 32 && std::all_of(key.begin(), key.end(), [](char letter) {
           return letter == '.' || digits.find(letter) != std::string_view::npos;
         });
}

}  // namespace

std::string key_of(Rank rank, std::string_view key, std::size_t piece) {
  std::string name(key);
  if (!is_plain(key)) {
    std::uint64_t sum = 14695981039346656037ull;  // the initial value of the hash FNV-1a
    for (char letter : key) sum = (sum ^ static_cast<unsigned char>(letter)) * 1099511628211ull;
    name = "sum" + std::to_string(sum);
  }
  return "hvd" + std::to_string(rank.value) + "." + name + "." + std::to_string(piece);
}

std::vector<std::string> pieces_of(ConstBytes value, std::size_t longest) {
  constexpr std::size_t number = 10;  // room for the number of pieces, such as "12345678:"
  std::size_t bytes = (longest - number) / 4 * 3;
  std::vector<std::string> pieces;
  do {
    std::size_t now = std::min(bytes, value.size());
    pieces.push_back(text_of(value.first(now)));
    value = value.subspan(now);
  } while (!value.empty());
  pieces[0].insert(0, std::to_string(pieces.size()) + ":");
  return pieces;
}

std::optional<std::size_t> number_of_pieces(std::string_view first) {
  auto count = take_number<std::size_t>(first);
  return count && *count > 0 && first.starts_with(':') ? count : std::nullopt;
}

std::optional<Buffer> value_of(const std::vector<std::string>& pieces) {
  Buffer value;
  for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
    std::string_view text = pieces[piece];
    if (piece == 0) text.remove_prefix(std::min(text.find(':') + 1, text.size()));
    if (!append_bytes_of(text, value)) return std::nullopt;
  }
  return value;
}

}  // namespace hvd::bootstrap::pmi
