// What a configuration file of Horovod says, as values of flags.
#include <algorithm>
#include <cctype>

#include "base/spelling.hpp"
#include "base/yaml.hpp"
#include "launcher/options/flags.hpp"

namespace hvd::launcher {
namespace {

YamlKind kind_of(std::string_view name) {
  if (name == "controller") return YamlKind::value;
  bool is_section = std::any_of(flag_rows().begin(), flag_rows().end(), [&](const FlagRow& row) {
    return row.key != nullptr && std::string_view(row.key).substr(0, std::string_view(row.key).find('.')) == name;
  });
  return is_section ? YamlKind::section : YamlKind::unknown;
}

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

std::string notice_of(const YamlEntry& entry, const std::string& file_name) {
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

// The value as the flag has it; nothing if the file leaves it open.
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
  auto entries = read_yaml(text, file_name, kind_of);
  if (!entries) return entries.error();
  bool has_stall_check = false, says_enabled = false;
  // If the file says something twice, the last one wins. The command line always wins.
  Flags from_file;
  for (const YamlEntry& entry : *entries) {
    const FlagRow* row = row_of(entry.key);
    if (row == nullptr && entry.key != "controller") {
      flags.notices.push_back(notice_of(entry, file_name));
      continue;
    }
    std::string where = file_name + ", line " + std::to_string(entry.line) + ": " + entry.key;
    auto single = single_value(entry);
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
      **value = **value == "1" ? "0" : "1";  // the flag is the opposite: no_stall_check
    }
    from_file.set(row->name, **value);
  }
  if (has_stall_check && !says_enabled) from_file.set("no_stall_check", "0");
  for (const FlagRow& row : flag_rows())
    if (from_file.has(row.name) && !flags.has(row.name)) flags.set(row.name, from_file.get(row.name));
  return {};
}

}  // namespace hvd::launcher
