#include "base/settings/settings_file.hpp"

#include <algorithm>

#include "base/error_ids.hpp"
#include "base/settings/config.hpp"
#include "base/text/number.hpp"
#include "base/text/spelling.hpp"
#include "base/text/trimmed.hpp"
#include "base/text/yaml.hpp"

namespace hvd {
namespace {

using enum FileKey::Form;

constexpr FileKey keys[] = {
    {"params.fusion_threshold_mb", "HOROVOD_FUSION_THRESHOLD", mebibytes},
    {"params.cycle_time_ms", "HOROVOD_CYCLE_TIME"},
    {"params.cache_capacity", "HOROVOD_CACHE_CAPACITY"},
    {"params.hierarchical_allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE"},
    {"params.hierarchical_allgather", "HOROVOD_HIERARCHICAL_ALLGATHER"},
    {"params.torus_allreduce", "HOROVOD_TORUS_ALLREDUCE"},
    {"autotune.enabled", "HOROVOD_AUTOTUNE"},
    {"autotune.log_file", "HOROVOD_AUTOTUNE_LOG"},
    {"autotune.warmup_samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES"},
    {"autotune.steps_per_sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"},
    {"autotune.bayes_opt_max_samples", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES"},
    {"autotune.gaussian_process_noise", "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE"},
    {"timeline.filename", "HOROVOD_TIMELINE"},
    {"timeline.mark_cycles", "HOROVOD_TIMELINE_MARK_CYCLES"},
    {"stall_check.enabled", "HOROVOD_STALL_CHECK_DISABLE", inverted_flag},
    {"stall_check.warning_time_seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS"},
    {"stall_check.shutdown_time_seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"},
    {"library_options.mpi_threads_disable", "HOROVOD_MPI_THREADS_DISABLE"},
    {"library_options.num_nccl_streams", "HOROVOD_NUM_NCCL_STREAMS"},
    {"library_options.thread_affinity", "HOROVOD_THREAD_AFFINITY"},
    {"library_options.gloo_timeout_seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS"},
    {"logging.level", "HOROVOD_LOG_LEVEL"},
    {"logging.with_timestamp", "HOROVOD_LOG_HIDE_TIME", inverted_flag},
};

constexpr std::string_view setting_section = "settings.", launcher_section = "horovodrun.";

std::string_view section_of(std::string_view key) {
  return key.substr(0, key.find('.'));
}

YamlKind kind_of(std::string_view name) {
  if (name == "controller" || name == "contact") return YamlKind::value;
  if (name == "locked") return YamlKind::list;
  bool is_section =
      name == "settings" || name == "horovodrun" ||
      std::any_of(std::begin(keys), std::end(keys), [&](const FileKey& row) { return section_of(row.key) == name; });
  return is_section ? YamlKind::section : YamlKind::unknown;
}

// Converts the value of a file's key to the value of its variable. A wrong value is returned unchanged; the rule of the
// variable then refuses it.
std::string converted(FileKey::Form form, const std::string& value) {
  if (form == mebibytes) {
    auto number = number_in<std::int64_t>(value);
    return number && *number >= 0 && *number < (1ll << 40) ? std::to_string(*number << 20) : value;
  }
  if (form == inverted_flag && means_the_same("HOROVOD_LOG_HIDE_TIME", value, "1")) return "0";
  if (form == inverted_flag && means_the_same("HOROVOD_LOG_HIDE_TIME", value, "0")) return "1";
  return value;
}

class Parser {
 public:
  Parser(const std::string& path, bool is_of_site) {
    file_.path = path;
    file_.is_of_site = is_of_site;
  }

  Result<SettingsFile> parse(std::string_view text) {
    auto entries = read_yaml(text, file_.path, kind_of);
    if (!entries) return entries.error();
    for (const YamlEntry& entry : *entries) HVD_RETURN_IF_ERROR(take(entry));
    return std::move(file_);
  }

 private:
  Status take(const YamlEntry& entry) {
    std::string_view key = entry.key;
    const FileKey* row = file_key(key);
    bool is_setting = key.starts_with(setting_section), is_of_launcher = key.starts_with(launcher_section);
    bool is_word = key == "contact" || key == "locked" || key == "controller";
    if (row == nullptr && !is_setting && !is_of_launcher && !is_word) return notice(entry, key), Status();
    auto value = single_value(entry);
    if (!value)
      return wrong(entry, std::string(is_setting ? key.substr(setting_section.size()) : key) + " must be " +
                              value.error().message);
    if (key == "contact" || key == "locked") return take_word(entry, *value);
    if (value->empty() || *value == "~" || *value == "null") return {};
    if (is_of_launcher || key == "controller") {
      std::string flag(is_of_launcher ? key.substr(launcher_section.size()) : key);
      file_.for_launcher.push_back({std::move(flag), *value, entry.line});
      return {};
    }
    if (row != nullptr) return set(entry, row->variable, converted(row->form, *value));
    return set(entry, std::string(key.substr(setting_section.size())), *value);
  }

  Status take_word(const YamlEntry& entry, const std::string& value) {
    if (!file_.is_of_site) {
      file_.notices.push_back(file_.place(entry.line) + ": the key " + entry.key +
                              " has no effect: only the file of the site may have it");
      return {};
    }
    if (entry.key == "contact") return file_.contact = value, Status();
    std::string_view name = value;
    if (name.starts_with(setting_section)) name.remove_prefix(setting_section.size());
    const FileKey* row = file_key(name);
    std::string variable(row != nullptr ? row->variable : name);
    if (!name.starts_with(launcher_section) && knob_of(variable) == nullptr)
      return wrong(entry, "expected the name of a setting or a key of this file to lock, found '" + value + "'" +
                              proposal(name));
    if (auto why = why_not_in_a_file(variable); !why.empty())
      return wrong(entry, variable + " cannot be locked: " + why);
    file_.locks[variable] = entry.line;
    return {};
  }

  Status set(const YamlEntry& entry, const std::string& variable, const std::string& value) {
    if (knob_of(variable) == nullptr) return notice(entry, variable), Status();
    if (auto why = why_not_in_a_file(variable); !why.empty()) return wrong(entry, variable + ": " + why);
    if (auto fault = fault_in(variable, value); !fault.empty()) return wrong(entry, fault);
    file_.settings[variable] = {value, entry.line};
    return {};
  }

  void notice(const YamlEntry& entry, std::string_view key) {
    file_.notices.push_back(file_.place(entry.line) + ": the key " + std::string(key) + " has no effect" +
                            proposal(key));
  }

  static std::string proposal(std::string_view key) {
    std::vector<std::string_view> known;
    if (key.starts_with("HOROVOD_")) {
      for (const KnobRow& knob : knobs()) known.emplace_back(std::string_view(knob.name).substr(8));
      std::string_view nearest = nearest_name(key.substr(8), known);
      return nearest.empty() ? "; docs/settings.md lists the settings"
                             : "; did you mean HOROVOD_" + std::string(nearest) + "?";
    }
    bool is_inside = key.find('.') != std::string_view::npos;
    for (const FileKey& row : keys) known.push_back(is_inside ? std::string_view(row.key) : section_of(row.key));
    if (!is_inside) known.insert(known.end(), {"controller", "contact", "locked", "settings", "horovodrun"});
    std::string_view nearest = nearest_name(key, known);
    return nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?";
  }

  Error wrong(const YamlEntry& entry, const std::string& what) const {
    return Error(ErrorCode::invalid_argument, file_.place(entry.line) + ": " + what);
  }

  SettingsFile file_;
};

// Returns the value in the site's file; if the file does not have the variable, the default.
std::string site_value(const SettingsFile& site, const std::string& variable) {
  if (auto found = site.settings.find(variable); found != site.settings.end()) return found->second.value;
  const KnobRow* knob = knob_of(variable);
  return knob == nullptr ? "" : knob->default_value;
}

}  // namespace

std::span<const FileKey> file_keys() {
  return keys;
}

const FileKey* file_key(std::string_view key) {
  auto row = std::find_if(std::begin(keys), std::end(keys), [&](const FileKey& r) { return key == r.key; });
  return row == std::end(keys) ? nullptr : row;
}

const FileKey* file_key_of(std::string_view variable) {
  auto row = std::find_if(std::begin(keys), std::end(keys), [&](const FileKey& r) { return variable == r.variable; });
  return row == std::end(keys) ? nullptr : row;
}

std::string why_not_in_a_file(const std::string& variable) {
  if (variable == "HOROVOD_SITE_CONFIG") return "it says where the site's file is, so it cannot be in a file";
  const KnobRow* knob = knob_of(variable);
  if (knob == nullptr || *knob->setter == '\0') return {};
  return std::string("it is set by ") + knob->setter + ", so it cannot be in a file";
}

Result<SettingsFile> parse_settings_file(std::string_view text, const std::string& path, bool is_of_site) {
  return Parser(path, is_of_site).parse(text);
}

Environment SettingsFiles::over(Environment environment) const {
  for (const auto* file : {&user, &site}) {
    if (!*file) continue;
    for (const auto& [variable, found] : (*file)->settings)
      if (trimmed(environment.get(variable).value_or("")).empty()) environment.set(variable, found.value);
  }
  return environment;
}

std::string SettingsFiles::whom_to_ask() const {
  return "ask " + (site && !site->contact.empty() ? site->contact : "the administrator of this installation");
}

Status SettingsFiles::check_lock(const std::string& variable, const std::string& value, const std::string& where,
                                 std::vector<std::string>& notices) const {
  if (!site || trimmed(value).empty()) return {};
  auto lock = site->locks.find(variable);
  if (lock == site->locks.end()) return {};
  std::string locked = site_value(*site, variable);
  if (means_the_same(variable, value, locked)) return {};
  std::string text = where + " sets " + variable + "=" + value + ", but the site has locked it " +
                     (locked.empty() ? "to be unset" : "to " + locked) + " (" + site->place(lock->second) +
                     "): leave it out, or " + whom_to_ask();
  const KnobRow* knob = knob_of(variable);
  if (knob == nullptr || !knob->has_no_effect())
    return identified(Error(ErrorCode::invalid_argument, std::move(text)), "HVD1004");
  notices.push_back(std::move(text));
  return {};
}

Status SettingsFiles::check_locks(const Environment& environment, std::vector<std::string>& notices) const {
  if (!site) return {};
  for (const auto& [variable, line] : site->locks) {
    if (auto value = environment.get(variable))
      HVD_RETURN_IF_ERROR(check_lock(variable, *value, "the environment", notices));
    if (!user) continue;
    if (auto found = user->settings.find(variable); found != user->settings.end())
      HVD_RETURN_IF_ERROR(check_lock(variable, found->second.value, user->place(found->second.line), notices));
  }
  return {};
}

std::vector<Setting> settings_of(const Environment& environment, const SettingsFiles& files) {
  std::vector<Setting> all;
  for (const KnobRow& knob : knobs()) {
    Setting setting{
        knob.name, knob.default_value, "default", "", 0, files.site && files.site->locks.contains(knob.name)};
    auto own = environment.get(knob.name);
    const SettingsFile* from = nullptr;
    for (const auto* file : {&files.site, &files.user})
      if (*file && (*file)->settings.contains(knob.name)) from = &**file;
    if (own && !trimmed(*own).empty()) {
      setting.value = *own;
      setting.source = "environment";
    } else if (from != nullptr) {
      const FileValue& found = from->settings.at(knob.name);
      setting.value = found.value;
      setting.source = files.user && from == &*files.user ? "user" : "site";
      setting.file = from->path;
      setting.line = found.line;
    }
    bool is_secret = setting.name.find("SECRET") != std::string::npos;
    if (is_secret && !setting.value.empty()) setting.value = "(not shown)";
    all.push_back(std::move(setting));
  }
  return all;
}

}  // namespace hvd
