// Reads the part of YAML that configuration files of Horovod use: sections of "key: value" lines, indented by blanks.
// Below keys that mean nothing here, any text is accepted.
#include <algorithm>
#include <cctype>

#include "base/spelling.hpp"
#include "launcher/options/flags.hpp"

namespace hvd::launcher {
namespace {

struct Entry {
  std::string key;  // "section.key", or "key" at the outermost level
  std::string value;
  int line = 0;
  bool has_keys_below = false;  // or items of a list
};

bool is_known_section(std::string_view name) {
  return name == "controller" || std::any_of(flag_rows().begin(), flag_rows().end(), [&](const FlagRow& row) {
           return row.key != nullptr &&
                  std::string_view(row.key).substr(0, std::string_view(row.key).find('.')) == name;
         });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

bool is_quote(char c) {
  return c == '"' || c == '\'';
}

// Returns the place where the quotes that begin at `at` are closed; the end of the text if they are not closed.
std::size_t closing_quote(std::string_view text, std::size_t at) {
  char quote = text[at];
  for (++at; at < text.size() && (text[at] != quote || text.substr(at, 2) == "''"); ++at)
    if ((quote == '"' && text[at] == '\\') || text[at] == quote) ++at;
  return std::min(at, text.size());
}

// Removes a comment. A '#' begins a comment at the start of a line or after a blank, outside of quotes. Quotes begin at
// the beginning of a value.
std::string_view without_comment(std::string_view text) {
  char before = ':';  // the last byte that is not a blank
  for (std::size_t at = 0; at < text.size(); ++at) {
    char c = text[at];
    if (is_quote(c) && (before == ':' || before == '-')) at = closing_quote(text, at);
    else if (c == '#' && (at == 0 || text[at - 1] == ' ' || text[at - 1] == '\t')) return text.substr(0, at);
    if (c != ' ' && c != '\t') before = c;
  }
  return text;
}

// Returns the text of a value. Fails for a value that is not plain text.
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

class Reader {
 public:
  explicit Reader(const std::string& file_name) : file_name_(file_name) {}

  Result<std::vector<Entry>> read(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a mark of UTF-8 that editors of Windows write
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
    if (indent == 0) return begin_section(content, number);
    if (section_.empty()) return wrong(number, "is indented, but no section stands above it");
    if (!section_is_known_) return {};
    if (section_ == "controller") return add_below(content);
    if (section_indent_ == 0) section_indent_ = indent;
    if (indent > section_indent_ && !entries_.empty()) return add_below(content);
    if (indent != section_indent_) return wrong(number, "is indented unlike the lines above it");
    std::size_t colon = colon_in(content);
    if (colon == std::string_view::npos || content.starts_with("- ")) return not_a_pair(content, number);
    add(section_ + "." + key_in(content, colon), content.substr(colon + 1), number);
    return {};
  }

  Status begin_section(std::string_view content, int number) {
    if (content.starts_with("-") && !section_.empty() && !section_is_known_) return {};  // items of a list
    std::size_t colon = colon_in(content);
    if (colon == std::string_view::npos) return not_a_pair(content, number);
    section_ = key_in(content, colon);
    section_indent_ = 0;
    section_is_known_ = is_known_section(section_);
    std::string_view value = trimmed(content.substr(colon + 1));
    if (section_is_known_ && (value.starts_with('{') || value.starts_with('[')))
      return wrong(
          number, "has its values in brackets: write each of them as 'key: value', indented below '" + section_ + ":'");
    if (!section_is_known_ || section_ == "controller" || !value.empty()) add(section_, value, number);
    return {};
  }

  // Handles a line that is indented more than the key above it: it is the key's value, or a part of that value.
  Status add_below(std::string_view content) {
    Entry& above = entries_.back();
    if (content.starts_with("- ") || (!is_quote(content.front()) && colon_in(content) != std::string_view::npos))
      above.has_keys_below = true;
    else above.value += (above.value.empty() ? "" : " ") + std::string(content);
    return {};
  }

  // Returns the place of the colon in "key: value", or npos.
  static std::size_t colon_in(std::string_view content) {
    std::size_t colon = content.find(':');
    bool is_pair = colon != std::string_view::npos && (colon + 1 == content.size() || content[colon + 1] == ' ');
    return is_pair ? colon : std::string_view::npos;
  }
  static std::string key_in(std::string_view content, std::size_t colon) {
    std::string_view key = trimmed(content.substr(0, colon));
    auto text = plain(key);
    return text ? *text : std::string(key);
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
  std::vector<Entry> entries_;
  std::string section_;
  bool section_is_known_ = false;
  std::size_t section_indent_ = 0;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Returns "1" or "0". Any other text is returned unchanged, and check_value() will refuse it.
std::string as_boolean(const std::string& text) {
  std::string word = lower(text);
  if (word == "true" || word == "yes" || word == "on") return "1";
  if (word == "false" || word == "no" || word == "off") return "0";
  return text;
}

Status apply_controller(Flags& flags, const std::string& text, const std::string& where) {
  if (flags.has("use_gloo") || flags.has("use_mpi") || flags.has("use_jsrun") || text.empty()) return {};
  std::string value = lower(text);
  if (value != "gloo" && value != "mpi")
    return Error(ErrorCode::invalid_argument, where + " must be gloo or mpi, not '" + text + "'");
  flags.set(value == "gloo" ? "use_gloo" : "use_mpi", "1");
  return {};
}

const FlagRow* row_of(const std::string& key) {
  auto rows = flag_rows();
  auto row = std::find_if(rows.begin(), rows.end(), [&](const FlagRow& r) { return r.key != nullptr && key == r.key; });
  return row == rows.end() ? nullptr : &*row;
}

std::string notice_of(const Entry& entry, const std::string& file_name) {
  std::vector<std::string_view> known;
  bool is_inside = entry.key.find('.') != std::string::npos;
  for (const FlagRow& row : flag_rows())
    if (row.key != nullptr)
      known.push_back(is_inside ? row.key : std::string_view(row.key).substr(0, std::string_view(row.key).find('.')));
  if (!is_inside) known.push_back("controller");
  std::string_view nearest = nearest_name(entry.key, known);
  return file_name + ", line " + std::to_string(entry.line) + ": the key " + entry.key + " has no effect" +
         (nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?");
}

// Returns the value in the form of the flag; nullopt if the file leaves the value open.
Result<std::optional<std::string>> value_for(const FlagRow& row, const std::string& text, const std::string& where) {
  if (text.empty() || text == "~" || lower(text) == "null") return std::optional<std::string>();
  bool boolean = row.kind == Kind::tristate || row.kind == Kind::toggle;
  std::string value = boolean ? as_boolean(text) : text;
  if (row.kind == Kind::level) std::transform(value.begin(), value.end(), value.begin(), ::toupper);
  auto checked = check_value(row, where, value);
  if (!checked) return std::move(checked.error());
  return std::optional(*checked);
}

}  // namespace

Status apply_config_file(Flags& flags, std::string_view text, const std::string& file_name) {
  auto entries = Reader(file_name).read(text);
  if (!entries) return entries.error();
  bool has_stall_check = false, says_enabled = false;
  // If the file says something twice, the last one wins. The command line always wins.
  Flags from_file;
  for (const Entry& entry : *entries) {
    const FlagRow* row = row_of(entry.key);
    if (row == nullptr && entry.key != "controller") {
      flags.notices.push_back(notice_of(entry, file_name));
      continue;
    }
    std::string where = file_name + ", line " + std::to_string(entry.line) + ": " + entry.key;
    auto single = entry.has_keys_below ? Error(ErrorCode::invalid_argument, "a single value, but others are below it")
                                       : plain(entry.value);
    if (!single) return Error(ErrorCode::invalid_argument, where + " must be " + single.error().message);
    if (row == nullptr) {
      HVD_RETURN_IF_ERROR(apply_controller(flags, *single, where));
      continue;
    }
    has_stall_check |= entry.key.starts_with("stall_check.");
    auto value = value_for(*row, *single, where);
    if (!value) return value.error();
    if (!*value) continue;
    if (entry.key == "stall_check.enabled") {
      says_enabled = true;
      **value = **value == "1" ? "0" : "1";  // the flag has the opposite meaning: no_stall_check
    }
    from_file.set(row->name, **value);
  }
  if (has_stall_check && !says_enabled) from_file.set("no_stall_check", "0");
  for (const FlagRow& row : flag_rows())
    if (from_file.has(row.name) && !flags.has(row.name)) flags.set(row.name, from_file.get(row.name));
  return {};
}

}  // namespace hvd::launcher
