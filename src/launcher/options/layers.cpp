#include "launcher/options/layers.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error_ids.hpp"
#include "base/settings/config.hpp"
#include "base/text/json_text.hpp"
#include "base/text/trimmed.hpp"

#include "native/posix/files/settings_files.hpp"

namespace hvd::launcher {
namespace {

std::string words_for(const FlagRow& row, const Origin& origin) {
  if (origin.layer == Origin::Layer::flag) return spelling_of(row);
  return origin.text() + " (" + spelling_of(row).substr(2) + ")";
}

// Checks the variables that flags set against the site's locks.
Status check_variables(Flags& flags, const SettingsFiles& files) {
  for (const FlagRow& row : flag_rows())
    for (const auto& [name, value] : variables_of(row, flags))
      HVD_RETURN_IF_ERROR(files.check_lock(name, value, words_for(row, flags.origin(row.name)), flags.notices));
  for (const auto& [name, variable] : flags.variables)
    HVD_RETURN_IF_ERROR(files.check_lock(name, variable.value, variable.origin.text(), flags.notices));
  return {};
}

struct Lock {
  const FlagRow& row;
  std::string value;     // what the site gives the flag; empty if it leaves the flag out
  std::string variable;  // what the flag's variable is then
  std::string place;
};

Result<Lock> lock_of(const FlagRow& row, const SettingsFile& site, int line) {
  Flags of_site;
  HVD_RETURN_IF_ERROR(apply_launcher_entries(of_site, Environment(), site));
  Lock lock{row, of_site.get(row.name), "", site.place(line)};
  if (row.variable == nullptr) return lock;
  if (row.needs != nullptr) of_site.set(row.needs, "1");
  lock.variable = variables_of(row, of_site)[row.variable];
  return lock;
}

Error locked_error(const Lock& lock, const std::string& found, const SettingsFiles& files) {
  return identified(
      Error(ErrorCode::invalid_argument, found + ", but the site has locked it " +
                                             (lock.value.empty() ? "to be left out" : "to " + lock.value) + " (" +
                                             lock.place + "): leave it out, or " + files.whom_to_ask()),
      "HVD1004");
}

// Checks the variable that a locked flag stands for, wherever that is set.
Status check_variable_of(const Lock& lock, const Flags& flags, const Environment& environment,
                         const SettingsFiles& files) {
  if (lock.row.variable == nullptr) return {};
  const std::string name = lock.row.variable;
  auto check = [&](const std::string& value, const std::string& where) -> Status {
    if (trimmed(value).empty() || means_the_same(name, value, lock.variable)) return {};
    return locked_error(lock, where + " sets " + name + "=" + value + " (" + spelling_of(lock.row) + ")", files);
  };
  HVD_RETURN_IF_ERROR(check(environment.get(name).value_or(""), "the environment"));
  if (auto found = flags.variables.find(name); found != flags.variables.end())
    HVD_RETURN_IF_ERROR(check(found->second.value, found->second.origin.text()));
  if (!files.user) return {};
  auto found = files.user->settings.find(name);
  return found == files.user->settings.end() ? Status()
                                             : check(found->second.value, files.user->place(found->second.line));
}

// Checks flags that the site has locked by their own names.
Status check_flags(const Flags& flags, const Environment& environment, const SettingsFiles& files) {
  for (const auto& [name, line] : files.site->locks) {
    if (!name.starts_with("horovodrun.")) continue;
    std::string word = name.substr(sizeof "horovodrun." - 1);
    const FlagRow* row = flag_named(word);
    if (row == nullptr || row->use == Use::question)
      return Error(
          ErrorCode::invalid_argument,
          files.site->place(line) + ": expected the name of a flag with a value to lock, found '" + word + "'");
    auto lock = lock_of(*row, *files.site, line);
    if (!lock) return lock.error();
    HVD_RETURN_IF_ERROR(check_variable_of(*lock, flags, environment, files));
    const Origin origin = flags.origin(row->name);
    const std::string found = flags.get(row->name);
    const bool is_of_others = origin.layer != Origin::Layer::nowhere && origin.layer != Origin::Layer::site;
    if (!is_of_others || found == lock->value) continue;
    return locked_error(*lock, words_for(*row, origin) + " is " + found, files);
  }
  return {};
}

// Notes where the value of a setting comes from.
void note_origin(Setting& setting, const Origin& origin) {
  setting.source = origin.name();
  setting.file = origin.file;
  setting.line = origin.line;
}

// Returns the settings of the ranks, with the values that flags and --config-file give them.
std::vector<Setting> settings_with_flags(const Flags& flags, const Layers& layers) {
  auto settings = settings_of(layers.given, layers.files);
  auto variables = variables_of(flags);
  for (Setting& setting : settings) {
    auto found = variables.find(setting.name);
    if (found == variables.end()) continue;
    setting.value = found->second;
    note_origin(setting, {Origin::Layer::flag});
    if (auto own = flags.variables.find(setting.name); own != flags.variables.end())
      note_origin(setting, own->second.origin);
    for (const FlagRow& row : flag_rows())
      if (variables_of(row, flags).contains(setting.name)) {
        note_origin(setting, flags.origin(row.name));
        setting.flag = spelling_of(row);
      }
  }
  return settings;
}

// Returns all flags except those that only ask for information.
std::vector<Setting> flags_as_settings(const Flags& flags, const Layers& layers) {
  std::vector<Setting> list;
  for (const FlagRow& row : flag_rows()) {
    if (row.use == Use::question) continue;
    std::string name = spelling_of(row);
    bool is_locked = layers.files.site && layers.files.site->locks.contains("horovodrun." + name.substr(2));
    Setting setting{name, flags.get(row.name), "default", "", 0, is_locked};
    if (flags.has(row.name)) note_origin(setting, flags.origin(row.name));
    list.push_back(std::move(setting));
  }
  return list;
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string table_of(const std::vector<Setting>& settings) {
  std::size_t name_width = 0, value_width = 0;
  for (const Setting& setting : settings) {
    name_width = std::max(name_width, setting.name.size());
    value_width = std::max(value_width, std::min<std::size_t>(setting.value.size(), 24));
  }
  std::string text;
  for (const Setting& setting : settings)
    text += "  " + padded(setting.name, name_width) + "  " +
            padded(setting.value.empty() ? "-" : setting.value, value_width) + "  " + setting.origin() +
            (setting.is_locked ? " (locked)" : "") + "\n";
  return text;
}

std::string json_of(const std::vector<Setting>& settings) {
  std::string text = "{";
  for (const Setting& setting : settings)
    text += std::string(text.size() > 1 ? "," : "") + "\n    " + in_json_quotes(setting.name) +
            ": {\"value\": " + in_json_quotes(setting.value) + ", \"origin\": " + in_json_quotes(setting.origin()) +
            ", \"layer\": " + in_json_quotes(setting.source) + ", \"file\": " + in_json_quotes(setting.file) +
            ", \"locked\": " + (setting.is_locked ? "true" : "false") + "}";
  return text + "\n  }";
}

std::string path_of(const std::optional<SettingsFile>& file) {
  return file ? file->path : std::string();
}

}  // namespace

Result<Layers> lay_files_under(Flags& flags, Environment& environment) {
  auto read = posix::settings_files(flags.notices);
  if (!read) return std::move(read.error());
  Layers layers{environment, **read};
  HVD_RETURN_IF_ERROR(layers.files.check_locks(environment, flags.notices));
  for (const auto* file : {&layers.files.user, &layers.files.site})
    if (*file) HVD_RETURN_IF_ERROR(apply_launcher_entries(flags, environment, **file));
  if (layers.files.site) {
    HVD_RETURN_IF_ERROR(check_variables(flags, layers.files));
    HVD_RETURN_IF_ERROR(check_flags(flags, environment, layers.files));
  }
  environment = layers.files.over(environment);
  return layers;
}

std::string show_config(const Flags& flags, const Layers& layers, bool as_json) {
  auto settings = settings_with_flags(flags, layers), own = flags_as_settings(flags, layers);
  const std::string site = path_of(layers.files.site), user = path_of(layers.files.user);
  if (as_json)
    return "{\n  \"site_file\": " + in_json_quotes(site) + ",\n  \"user_file\": " + in_json_quotes(user) +
           ",\n  \"settings\": " + json_of(settings) + ",\n  \"flags\": " + json_of(own) + "\n}\n";
  return "The site's file: " + (site.empty() ? "none" : site) + "\nThe user's file: " + (user.empty() ? "none" : user) +
         "\n\nSettings of the ranks\n" + table_of(settings) + "\nFlags of horovodrun\n" + table_of(own);
}

}  // namespace hvd::launcher
