// Reads a configuration file of Horovod as values of flags.
#include <algorithm>
#include <cctype>

#include "base/settings/config.hpp"
#include "base/settings/settings_file.hpp"
#include "base/text/spelling.hpp"
#include "base/text/trimmed.hpp"
#include "base/text/yaml.hpp"
#include "launcher/options/flags.hpp"

namespace hvd::launcher {
namespace {

std::string_view section_of(std::string_view key) {
  return key.substr(0, key.find('.'));
}

YamlKind kind_of(std::string_view name) {
  if (name == "controller") return YamlKind::value;
  bool is_section = name == "settings" || name == "horovodrun" ||
                    std::any_of(file_keys().begin(), file_keys().end(),
                                [&](const FileKey& row) { return section_of(row.key) == name; });
  return is_section ? YamlKind::section : YamlKind::unknown;
}

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

Status apply_controller(Flags& flags, const std::string& text, const std::string& where, const Origin& origin) {
  if (flags.has("use_gloo") || flags.has("use_mpi") || flags.has("use_jsrun") || text.empty()) return {};
  std::string value = lower(text);
  if (value != "gloo" && value != "mpi")
    return Error(ErrorCode::invalid_argument, where + " must be gloo or mpi, not '" + text + "'");
  flags.set(value == "gloo" ? "use_gloo" : "use_mpi", "1", origin);
  return {};
}

const FlagRow* row_of(std::string_view key) {
  if (key.starts_with("horovodrun.")) return flag_named(key.substr(sizeof "horovodrun." - 1));
  const FileKey* known = file_key(key);
  if (known == nullptr) return nullptr;
  auto rows = flag_rows();
  auto row = std::find_if(rows.begin(), rows.end(), [&](const FlagRow& r) {
    return r.variable != nullptr && std::string_view(r.variable) == known->variable;
  });
  return row == rows.end() ? nullptr : &*row;
}

// Converts the file's text to the value of the flag. Returns no value if the text is empty or null.
Result<std::optional<std::string>> value_for(const FlagRow& row, const std::string& text, const std::string& where) {
  if (text.empty() || text == "~" || lower(text) == "null") return std::optional<std::string>();
  bool boolean = row.kind == Kind::tristate || row.kind == Kind::toggle;
  std::string value = boolean ? as_boolean(text) : text;
  if (row.kind == Kind::level) std::transform(value.begin(), value.end(), value.begin(), ::toupper);
  auto checked = check_value(row, where, value);
  if (!checked) return std::move(checked.error());
  return std::optional(*checked);
}

// Returns a notice about an unknown key. It suggests the known key with the nearest name.
std::string notice_of(const YamlEntry& entry, const std::string& file_name) {
  std::vector<std::string> names;
  std::string_view key = entry.key;
  bool is_inside = key.find('.') != std::string_view::npos;
  for (const FileKey& row : file_keys())
    names.emplace_back(is_inside ? std::string_view(row.key) : section_of(row.key));
  if (key.starts_with("horovodrun."))
    for (const FlagRow& row : flag_rows()) names.push_back("horovodrun." + spelling_of(row).substr(2));
  if (key.starts_with("settings."))
    for (const KnobRow& knob : knobs()) names.push_back(std::string("settings.") + knob.name);
  if (!is_inside) names.insert(names.end(), {"controller", "settings", "horovodrun"});
  std::string_view nearest = nearest_name(key, std::vector<std::string_view>(names.begin(), names.end()));
  return file_name + ", line " + std::to_string(entry.line) + ": the key " + entry.key + " has no effect" +
         (nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?");
}

// Sets a variable that is below "settings", under its own name.
Status apply_setting(Flags& flags, const YamlEntry& entry, const std::string& value, const std::string& file_name) {
  std::string name = entry.key.substr(sizeof "settings." - 1);
  const Origin origin{Origin::Layer::config_file, file_name, entry.line};
  const std::string place = origin.text();
  if (auto why = why_not_in_a_file(name); !why.empty())
    return Error(ErrorCode::invalid_argument, place + ": " + name + ": " + why);
  if (auto fault = fault_in(name, value); !fault.empty())
    return Error(ErrorCode::invalid_argument, place + ": " + fault);
  flags.variables[name] = {value, origin};
  return {};
}

// True if the user gave another flag that excludes this one.
bool has_rival(const Flags& flags, std::string_view name) {
  constexpr std::string_view groups[][3] = {{"use_gloo", "use_mpi", "use_jsrun"}, {"hosts", "hostfile", "hostfile"}};
  for (const auto& group : groups)
    if (std::find(std::begin(group), std::end(group), name) != std::end(group))
      return std::any_of(std::begin(group), std::end(group), [&](std::string_view other) { return flags.has(other); });
  return false;
}

// Returns why this flag makes no sense in a file that is read for every job; empty if it makes sense.
std::string why_not_for_all_jobs(const FlagRow& row, const std::string& value) {
  const std::string_view name = row.name;
  if (row.use == Use::question || (name == "preflight" && (value == "only" || value == "json")))
    return " only asks for information: give it as a flag on the command line";
  if (name == "config_file") return " names another file, but this one is read in its place: give it as a flag";
  return "";
}

// The flags that a file sets. If a flag has several lines, the last one counts.
struct FromFile {
  Flags flags;
  bool has_stall_check = false, says_enabled = false;
};

Status take(FromFile& file, Flags& flags, const YamlEntry& entry, const std::string& file_name) {
  bool is_setting = entry.key.starts_with("settings.") && knob_of(entry.key.substr(sizeof "settings." - 1)) != nullptr;
  const FlagRow* row = row_of(entry.key);
  if (row == nullptr && entry.key != "controller" && !is_setting)
    return flags.notices.push_back(notice_of(entry, file_name)), Status();
  const Origin origin{Origin::Layer::config_file, file_name, entry.line};
  const std::string where = origin.text() + ": " + entry.key;
  auto single = single_value(entry);
  if (!single) return Error(ErrorCode::invalid_argument, where + " must be " + single.error().message);
  if (is_setting) return apply_setting(flags, entry, *single, file_name);
  if (row == nullptr) return apply_controller(flags, *single, where, origin);
  if (auto why = why_not_for_all_jobs(*row, *single); !why.empty())
    return Error(ErrorCode::invalid_argument, where + why);
  file.has_stall_check |= entry.key.starts_with("stall_check.");
  auto value = value_for(*row, *single, where);
  if (!value) return value.error();
  if (!*value) return {};
  if (entry.key == "stall_check.enabled") {
    file.says_enabled = true;
    **value = **value == "1" ? "0" : "1";  // the flag no_stall_check means the opposite of the key
  }
  file.flags.set(row->name, **value, origin);
  return {};
}

}  // namespace

Status apply_config_file(Flags& flags, std::string_view text, const std::string& file_name) {
  auto entries = read_yaml(text, file_name, kind_of);
  if (!entries) return entries.error();
  FromFile file;
  for (const YamlEntry& entry : *entries) HVD_RETURN_IF_ERROR(take(file, flags, entry, file_name));
  if (file.has_stall_check && !file.says_enabled)
    file.flags.set("no_stall_check", "0", {Origin::Layer::config_file, file_name});
  // A flag on the command line takes precedence over the file.
  for (const FlagRow& row : flag_rows())
    if (file.flags.has(row.name) && !flags.has(row.name))
      flags.set(row.name, file.flags.get(row.name), file.flags.origin(row.name));
  return {};
}

Status apply_launcher_entries(Flags& flags, const Environment& environment, const SettingsFile& file) {
  for (const LauncherEntry& entry : file.for_launcher) {
    const Origin origin{file.is_of_site ? Origin::Layer::site : Origin::Layer::user, file.path, entry.line};
    if (entry.key == "controller") {
      HVD_RETURN_IF_ERROR(apply_controller(flags, entry.value, origin.text() + ": controller", origin));
      continue;
    }
    const FlagRow* row = flag_named(entry.key);
    YamlEntry written{"horovodrun." + entry.key, entry.value, entry.line, false};
    if (row == nullptr) {
      flags.notices.push_back(notice_of(written, file.path));
      continue;
    }
    const std::string where = origin.text() + ": " + written.key;
    if (auto why = why_not_for_all_jobs(*row, entry.value); !why.empty())
      return Error(ErrorCode::invalid_argument, where + why);
    auto value = value_for(*row, entry.value, where);
    if (!value) return value.error();
    bool is_said = flags.has(row->name) || has_rival(flags, row->name) ||
                   (row->variable != nullptr && (!trimmed(environment.get(row->variable).value_or("")).empty() ||
                                                 flags.variables.contains(row->variable)));
    if (!*value || is_said || (row->use == Use::job_script && !flags.has("jobscript"))) continue;
    flags.set(row->name, **value, origin);
  }
  return {};
}

}  // namespace hvd::launcher
