#pragma once
// A file of settings, of the site or of a user. It has values of variables that ranks read, entries for horovodrun, and
// locks, which are settings that only the site may set.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"

namespace hvd {

// A key of Horovod's configuration files, and the variable that has the same meaning.
struct FileKey {
  enum class Form { as_given, mebibytes, inverted_flag };
  const char* key;  // "section.key"
  const char* variable;
  Form form = Form::as_given;
};
std::span<const FileKey> file_keys();
const FileKey* file_key(std::string_view key);  // null if no key has this name
const FileKey* file_key_of(std::string_view variable);

// Returns why this variable cannot be set in a file, for example because launchers set it. Empty if it can.
std::string why_not_in_a_file(const std::string& variable);

struct FileValue {
  std::string value;
  int line = 0;
};

// An entry below `horovodrun:` (its key is a flag without the dashes), or the entry `controller`. The launcher checks
// these entries.
struct LauncherEntry {
  std::string key, value;
  int line = 0;
};

struct SettingsFile {
  std::string path;
  bool is_of_site = false;                    // else the user's
  std::string contact;                        // whom users ask about locks; empty: the file does not tell
  std::map<std::string, FileValue> settings;  // values by variable; if a variable has several lines, the last one
                                              // counts
  std::vector<LauncherEntry> for_launcher;
  std::map<std::string, int> locks;  // lines of the locks, by variable or "horovodrun.flag"
  std::vector<std::string> notices;  // notices about keys that have no meaning here

  std::string place(int line) const { return path + ", line " + std::to_string(line); }
};

// Fails if the text is not YAML that base/text/yaml can read, or if a value breaks its setting's rule. Only the site's
// file may have locks.
Result<SettingsFile> parse_settings_file(std::string_view text, const std::string& path, bool is_of_site);

// The files of settings that apply to a process. The user's file takes precedence over the site's.
struct SettingsFiles {
  std::optional<SettingsFile> site, user;

  // Returns the environment with the variables added that it does not set: from the user's file, else from the site's.
  Environment over(Environment environment) const;
  // Fails if the environment or the user's file gives a locked setting another value. If the setting has no effect
  // anyhow, there is only a notice, because scripts written for Horovod must run.
  Status check_locks(const Environment& environment, std::vector<std::string>& notices) const;
  // The same check for one value of `variable`. `where` tells the user where this value is set.
  Status check_lock(const std::string& variable, const std::string& value, const std::string& where,
                    std::vector<std::string>& notices) const;
  std::string whom_to_ask() const;
};

// The value of a setting and where it comes from.
struct Setting {
  std::string name, value;
  std::string source;  // "default", "site", "user" or "environment"; in horovodrun also "flag" or "config-file"
  std::string file;    // if the source is a file: its path
  int line = 0;        // 0: the whole file
  bool is_locked = false;
  std::string flag{};  // if the source of a variable is a flag: its spelling

  std::string origin() const {
    if (!file.empty()) return file + (line > 0 ? ", line " + std::to_string(line) : "");
    return flag.empty() ? source : source + " " + flag;
  }
};
// Returns all settings in the order of the table of knobs. Secrets of a job are not shown.
std::vector<Setting> settings_of(const Environment& environment, const SettingsFiles& files);

}  // namespace hvd
