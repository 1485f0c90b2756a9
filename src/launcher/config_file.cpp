// The part of YAML that configuration files of Horovod use: sections of "key: value" lines, indented by blanks.
#include <algorithm>
#include <cctype>

#include "launcher/flags.hpp"

namespace hvd::launcher {
namespace {

struct Entry {
  std::string key;  // "section.key", or "key" at the outermost level
  std::string value;
  int line = 0;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

// A '#' begins a comment at the line's start or after a blank, outside of quotes.
std::string_view without_comment(std::string_view text) {
  char quote = '\0';
  for (std::size_t at = 0; at < text.size(); ++at) {
    char c = text[at];
    if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#' && (at == 0 || text[at - 1] == ' ' || text[at - 1] == '\t')) {
      return text.substr(0, at);
    }
  }
  return text;
}

std::string_view unquoted(std::string_view text) {
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
    return text.substr(1, text.size() - 2);
  return text;
}

class Reader {
 public:
  explicit Reader(const std::string& file_name) : file_name_(file_name) {}

  Result<std::vector<Entry>> read(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a mark of UTF-8, as editors of Windows write it
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
    // Below a key that nobody asked for there may be anything; a known key with something below it is found out later.
    if (indent > 0 && section_indent_ > 0 && indent > section_indent_) return {};
    std::size_t colon = content.find(':');
    if (content.front() == '-' && indent > 0) return {};
    if (colon == std::string_view::npos || (colon + 1 < content.size() && content[colon + 1] != ' '))
      return wrong(number, "is not of the form 'key: value': '" + std::string(content) + "'");
    std::string key(unquoted(trimmed(content.substr(0, colon))));
    std::string value(unquoted(trimmed(content.substr(colon + 1))));
    if (indent == 0) {
      section_ = key;
      section_indent_ = 0;
      if (value.starts_with('{') || value.starts_with('['))
        return wrong(number,
                     "has its values in brackets: write each of them as 'key: value', indented below '" + key + ":'");
      if (!value.empty()) entries_.push_back({key, value, number});
      return {};
    }
    if (section_.empty()) return wrong(number, "is indented, but no section stands above it");
    if (section_indent_ == 0) section_indent_ = indent;
    if (indent != section_indent_) return wrong(number, "is indented unlike the lines above it");
    entries_.push_back({section_ + "." + key, value, number});
    return {};
  }

  Error wrong(int line, const std::string& what) const {
    return Error(ErrorCode::invalid_argument, file_name_ + ", line " + std::to_string(line) + ": the line " + what);
  }

  const std::string& file_name_;
  std::vector<Entry> entries_;
  std::string section_;
  std::size_t section_indent_ = 0;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// "1", "0", or the text unchanged for check_value() to refuse.
std::string as_boolean(const std::string& text) {
  std::string word = lower(text);
  if (word == "true" || word == "yes" || word == "on") return "1";
  if (word == "false" || word == "no" || word == "off") return "0";
  return text;
}

Status apply_controller(Flags& flags, const Entry& entry, const std::string& where) {
  if (flags.has("use_gloo") || flags.has("use_mpi") || flags.has("use_jsrun")) return {};
  std::string value = lower(entry.value);
  if (value != "gloo" && value != "mpi")
    return Error(ErrorCode::invalid_argument, where + " must be gloo or mpi, not '" + entry.value + "'");
  flags.set(value == "gloo" ? "use_gloo" : "use_mpi", "1");
  return {};
}

}  // namespace

Status apply_config_file(Flags& flags, std::string_view text, const std::string& file_name) {
  auto entries = Reader(file_name).read(text);
  if (!entries) return entries.error();
  bool has_stall_check = false, says_enabled = false;
  // What the file says twice, the last one wins; what the command line says, always.
  Flags from_file;
  for (const Entry& entry : *entries) {
    std::string where = file_name + ", line " + std::to_string(entry.line) + ": " + entry.key;
    has_stall_check |= entry.key.starts_with("stall_check.");
    if (entry.key == "controller") {
      HVD_RETURN_IF_ERROR(apply_controller(flags, entry, where));
      continue;
    }
    for (const FlagRow& row : flag_rows()) {
      if (row.key == nullptr || entry.key != row.key) continue;
      if (entry.value.empty() || entry.value == "~" || lower(entry.value) == "null") continue;
      bool boolean = row.kind == Kind::tristate || row.kind == Kind::toggle;
      std::string value = boolean ? as_boolean(entry.value) : entry.value;
      if (row.kind == Kind::level) std::transform(value.begin(), value.end(), value.begin(), ::toupper);
      auto checked = check_value(row, where, value);
      if (!checked) return checked.error();
      if (std::string_view(row.key) == "stall_check.enabled") {
        says_enabled = true;
        *checked = *checked == "1" ? "0" : "1";  // the flag is the opposite: no_stall_check
      }
      from_file.set(row.name, *checked);
    }
  }
  if (has_stall_check && !says_enabled) from_file.set("no_stall_check", "0");
  for (const FlagRow& row : flag_rows())
    if (from_file.has(row.name) && !flags.has(row.name)) flags.set(row.name, from_file.get(row.name));
  return {};
}

}  // namespace hvd::launcher
