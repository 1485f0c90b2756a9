#pragma once
// A strict reader of JSON, for tests of the JSON files that the library writes.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::testing {

struct Json {
  enum class Kind { nothing, number, text, array, object } kind = Kind::nothing;
  double number = 0;
  std::string text;  // the text with its escapes, which are not decoded
  std::vector<Json> items;
  std::map<std::string, Json> members;

  bool has(const std::string& name) const { return members.contains(name); }
  const Json& operator[](const std::string& name) const {
    static const Json none;
    auto found = members.find(name);
    return found == members.end() ? none : found->second;
  }
};

class JsonReader {
 public:
  // Returns nothing if the text is not exactly one value with optional blanks.
  static std::optional<Json> read(std::string_view text) {
    JsonReader reader(text);
    Json value;
    if (!reader.take_value(value)) return std::nullopt;
    reader.skip_blanks();
    if (!reader.rest_.empty()) return std::nullopt;
    return value;
  }
  static std::optional<Json> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    return read(text);
  }

 private:
  explicit JsonReader(std::string_view text) : rest_(text) {}

  void skip_blanks() {
    while (!rest_.empty() && std::string_view(" \n\r\t").find(rest_[0]) != std::string_view::npos)
      rest_.remove_prefix(1);
  }
  bool take(char letter) {
    skip_blanks();
    if (rest_.empty() || rest_[0] != letter) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_text(std::string& text) {
    if (!take('"')) return false;
    while (!rest_.empty() && rest_[0] != '"') {
      if (static_cast<unsigned char>(rest_[0]) < 0x20) return false;
      std::size_t count = rest_[0] == '\\' ? 2 : 1;
      if (rest_.size() < count || (count == 2 && std::string_view("\"\\/bfnrtu").find(rest_[1]) == rest_.npos))
        return false;
      text += rest_.substr(0, count);
      rest_.remove_prefix(count);
    }
    return take('"');
  }
  bool take_number(double& number) {
    std::size_t count = 0;
    while (count < rest_.size() && (std::isdigit(rest_[count]) != 0 || rest_[count] == '-' || rest_[count] == '.'))
      ++count;
    if (count == 0) return false;
    number = std::stod(std::string(rest_.substr(0, count)));
    rest_.remove_prefix(count);
    return true;
  }
  bool take_value(Json& value) {
    skip_blanks();
    if (rest_.empty()) return false;
    if (rest_[0] == '"') {
      value.kind = Json::Kind::text;
      return take_text(value.text);
    }
    if (take('[')) {
      value.kind = Json::Kind::array;
      if (take(']')) return true;
      do {
        if (!take_value(value.items.emplace_back())) return false;
      } while (take(','));
      return take(']');
    }
    if (take('{')) {
      value.kind = Json::Kind::object;
      if (take('}')) return true;
      do {
        std::string name;
        if (!take_text(name) || !take(':') || !take_value(value.members[name])) return false;
      } while (take(','));
      return take('}');
    }
    value.kind = Json::Kind::number;
    return take_number(value.number);
  }

  std::string_view rest_;
};

// Checks the rules that viewers of Chrome's trace format rely on: times never decrease within a row, and spans are
// nested. A fault fails the test. Returns the number of spans that are open at the end, over all rows.
inline int check_spans(const Json& trace) {
  std::map<int, std::vector<std::string>> open;
  std::map<int, double> last;
  for (const Json& event : trace.items) {
    std::string phase = event["ph"].text;
    EXPECT_TRUE(phase == "B" || phase == "E" || phase == "X" || phase == "M" || phase == "i") << phase;
    EXPECT_TRUE(event.has("pid"));
    if (phase == "M") continue;
    EXPECT_TRUE(event.has("ts"));
    if (phase == "i") continue;
    int row = static_cast<int>(event["pid"].number);
    EXPECT_GE(event["ts"].number, last[row]) << "in row " << row;
    last[row] = event["ts"].number;
    if (phase == "B") open[row].push_back(event["name"].text);
    if (phase != "E") continue;
    EXPECT_FALSE(open[row].empty()) << "row " << row << " ends what it did not begin";
    if (!open[row].empty()) open[row].pop_back();
  }
  int left = 0;
  for (const auto& [row, spans] : open) left += static_cast<int>(spans.size());
  return left;
}

}  // namespace hvd::testing
