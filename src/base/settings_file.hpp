#pragma once
// A file of settings, of the site or of a user: what it says about the variables that ranks go by, what it leaves to
// horovodrun, and which settings the site has locked.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/result.hpp"

namespace hvd {

// A key that Horovod's configuration files have, and the variable that stands for it.
struct FileKey {
  enum class Form { as_given, mebibytes, inverted_flag };
  const char* key;  // "section.key"
  const char* variable;
  Form form = Form::as_given;
};
std::span<const FileKey> file_keys();
const FileKey* file_key(std::string_view key);  // null if there is none
const FileKey* file_key_of(std::string_view variable);

// Why this variable cannot stand in a file, as those that launchers set; empty if it can.
std::string why_not_in_a_file(const std::string& variable);

struct FileValue {
  std::string value;
  int line = 0;
};

// What stands below `horovodrun:` (the key is a flag without its dashes), and `controller`: for the launcher to judge.
struct LauncherEntry {
  std::string key, value;
  int line = 0;
};

struct SettingsFile {
  std::string path;
  std::string contact;                        // whom to ask about locks; empty: not told
  std::map<std::string, FileValue> settings;  // by variable; the last of several lines counts
  std::vector<LauncherEntry> for_launcher;
  std::map<std::string, int> locks;  // the line of each: a variable, or "horovodrun.flag"
  std::vector<std::string> notices;  // about keys that mean nothing

  std::string place(int line) const { return path + ", line " + std::to_string(line); }
};

// Fails on what is no YAML of the kind that base/yaml reads, and on values that break a setting's rule. Only the file
// of a site may lock.
Result<SettingsFile> parse_settings_file(std::string_view text, const std::string& path, bool is_of_site);

// The files that count for a process, one over the other.
struct SettingsFiles {
  std::optional<SettingsFile> site, user;

  // The environment with what it leaves open filled in: by the user's file, else by the site's.
  Environment over(Environment environment) const;
  // Fails if the environment or the user's file differs from what the site has locked. Where a setting has no effect
  // anyhow, that is a notice, since scripts of Horovod have to run.
  Status check_locks(const Environment& environment, std::vector<std::string>& notices) const;
  // The same for one value of `variable`; `where` is what sets it.
  Status check_lock(const std::string& variable, const std::string& value, const std::string& where,
                    std::vector<std::string>& notices) const;
  std::string whom_to_ask() const;
};

// The value of a setting and where it comes from.
struct Setting {
  std::string name, value;
  std::string source;  // "default", "site", "user", "environment"; horovodrun knows more
  std::string file;    // of a site or a user: where it says so
  int line = 0;
  bool is_locked = false;

  std::string origin() const { return file.empty() ? source : file + ", line " + std::to_string(line); }
};
// All of them, in the order of the table of knobs. What only the job's processes may know is not shown.
std::vector<Setting> settings_of(const Environment& environment, const SettingsFiles& files);

}  // namespace hvd
