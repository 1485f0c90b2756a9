// Reads the lines one after the other. Everything below an unknown key is skipped.
#include "base/text/yaml.hpp"

#include <algorithm>

#include "base/text/trimmed.hpp"

namespace hvd {
namespace {

bool is_quote(char c) {
  return c == '"' || c == '\'';
}

// Returns the position of the quote that closes the one at `at`. If there is none, returns the end of the text.
std::size_t closing_quote(std::string_view text, std::size_t at) {
  char quote = text[at];
  for (++at; at < text.size() && (text[at] != quote || text.substr(at, 2) == "''"); ++at)
    if ((quote == '"' && text[at] == '\\') || text[at] == quote) ++at;
  return std::min(at, text.size());
}

// Removes a comment. A '#' begins a comment at the start of a line or after a blank, but not inside quotes. Quotes
// begin where a value begins.
std::string_view without_comment(std::string_view text) {
  char before = ':';  // the last character that is not a blank
  for (std::size_t at = 0; at < text.size(); ++at) {
    char c = text[at];
    if (is_quote(c) && (before == ':' || before == '-')) at = closing_quote(text, at);
    else if (c == '#' && (at == 0 || text[at - 1] == ' ' || text[at - 1] == '\t')) return text.substr(0, at);
    if (c != ' ' && c != '\t') before = c;
  }
  return text;
}

// Returns the text of a value without its quotes. Fails if the value is not a single value on one line.
Result<std::string> plain(std::string_view value) {
  auto wrong = [](const std::string& why) { return Error(ErrorCode::invalid_argument, why); };
  if (value.empty() || !is_quote(value.front())) {
    if (!value.empty() && std::string_view("|>[{&*!%@`").find(value.front()) != std::string_view::npos)
      return wrong("a single value on one line (in quotes if it begins with a '" + std::string(1, value.front()) +
                   "')");
    return std::string(value);
  }
  std::size_t end = closing_quote(value, 0);
  if (end == value.size()) return wrong("one whole value, but there is no closing quote");
  if (end + 1 < value.size()) return wrong("one value, but there is something behind the closing quote");
  std::string text;
  for (std::size_t at = 1; at < end; ++at) {
    bool escapes = value[0] == '"' ? value[at] == '\\' : value[at] == '\'';
    if (escapes) ++at;
    text += value[at];
  }
  return text;
}

// Returns the position of the colon in "key: value"; npos if the text has not this form.
std::size_t colon_in(std::string_view content) {
  std::size_t colon = content.find(':');
  bool is_pair = colon != std::string_view::npos && (colon + 1 == content.size() || content[colon + 1] == ' ');
  return is_pair ? colon : std::string_view::npos;
}

std::string key_in(std::string_view content, std::size_t colon) {
  std::string_view key = trimmed(content.substr(0, colon));
  auto text = plain(key);
  return text ? *text : std::string(key);
}

bool is_item(std::string_view content) {
  return content == "-" || content.starts_with("- ");
}

class Reader {
 public:
  Reader(const std::string& file_name, const std::function<YamlKind(std::string_view)>& kind_of)
      : file_name_(file_name), kind_of_(kind_of) {}

  Result<std::vector<YamlEntry>> read(std::string_view text) {
    // the byte order mark of UTF-8, which editors on Windows write
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
    for (int line = 1; !text.empty(); ++line) {
      std::size_t end = std::min(text.find('\n'), text.size());
      HVD_RETURN_IF_ERROR(read_line(without_comment(text.substr(0, end)), line));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    return std::move(entries_);
  }

 private:
  Status read_line(std::string_view line, int number) {
    std::string_view content = trimmed(line);
    if (content.empty() || content == "---" || content == "...") return {};
    std::size_t indent = line.find_first_not_of(' ');
    if (line[indent] == '\t') return wrong(number, "indents with a tab: use blanks");
    if (kind_ == YamlKind::list && is_item(content)) return add(outer_, content.substr(1), number), Status();
    if (indent == 0) return begin(content, number);
    if (outer_.empty()) return wrong(number, "is indented, but there is no section above it");
    switch (kind_) {
      case YamlKind::unknown: return {};
      case YamlKind::value: return add_below(content);
      case YamlKind::list:
        return wrong(number, "is below the list '" + outer_ + "', so '- ' and a value were expected; found '" +
                                 std::string(content) + "'");
      case YamlKind::section: break;
    }
    if (section_indent_ == 0) section_indent_ = indent;
    if (indent > section_indent_ && !entries_.empty()) return add_below(content);
    if (indent != section_indent_) return wrong(number, "is indented unlike the lines above it");
    std::size_t colon = colon_in(content);
    if (colon == std::string_view::npos || is_item(content)) return not_a_pair(content, number);
    add(outer_ + "." + key_in(content, colon), content.substr(colon + 1), number);
    return {};
  }

  // Reads a line that is not indented.
  Status begin(std::string_view content, int number) {
    // an item of a list below an unknown key
    if (content.starts_with("-") && !outer_.empty() && kind_ == YamlKind::unknown) return {};
    std::size_t colon = colon_in(content);
    if (colon == std::string_view::npos) return not_a_pair(content, number);
    outer_ = key_in(content, colon);
    section_indent_ = 0;
    kind_ = kind_of_(outer_);
    std::string_view value = trimmed(content.substr(colon + 1));
    bool has_several = kind_ == YamlKind::section || kind_ == YamlKind::list;
    if (has_several && (value.starts_with('{') || value.starts_with('[')))
      return wrong(number, std::string("has its values in brackets: write each of them as ") +
                               (kind_ == YamlKind::list ? "'- value'" : "'key: value'") + ", indented below '" +
                               outer_ + ":'");
    if (!has_several || !value.empty()) add(outer_, value, number);
    return {};
  }

  // Reads a line that is indented more than the key above it. The line is the key's value, or a part of it.
  Status add_below(std::string_view content) {
    YamlEntry& above = entries_.back();
    if (is_item(content) || (!is_quote(content.front()) && colon_in(content) != std::string_view::npos))
      above.has_keys_below = true;
    else above.value += (above.value.empty() ? "" : " ") + std::string(content);
    return {};
  }

  void add(std::string key, std::string_view value, int number) {
    entries_.push_back({std::move(key), std::string(trimmed(value)), number, false});
  }

  Error not_a_pair(std::string_view content, int line) const {
    return wrong(line, "is not of the form 'key: value': '" + std::string(content) + "'");
  }
  Error wrong(int line, const std::string& what) const {
    return Error(ErrorCode::invalid_argument, file_name_ + ", line " + std::to_string(line) + ": the line " + what);
  }

  const std::string& file_name_;
  const std::function<YamlKind(std::string_view)>& kind_of_;
  std::vector<YamlEntry> entries_;
  std::string outer_;  // the last key that was not indented
  YamlKind kind_ = YamlKind::unknown;
  std::size_t section_indent_ = 0;
};

}  // namespace

Result<std::vector<YamlEntry>> read_yaml(std::string_view text, const std::string& file_name,
                                         const std::function<YamlKind(std::string_view)>& kind_of) {
  return Reader(file_name, kind_of).read(text);
}

Result<std::string> single_value(const YamlEntry& entry) {
  if (entry.has_keys_below) return Error(ErrorCode::invalid_argument, "a single value, but others are below it");
  return plain(entry.value);
}

}  // namespace hvd
