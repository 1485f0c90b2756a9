#pragma once
// The command line of horovodrun: a table of flags, and the values that a command line and a configuration file give
// them.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"
#include "base/settings/settings_file.hpp"

namespace hvd::launcher {

enum class Kind {
  action,    // an action such as "--help", recorded as "1"
  toggle,    // has no value: it is given or not
  tristate,  // given in its positive form, in its negative form, or not given
  integer,
  number,
  text,
  list,            // may be repeated; the values are joined by commas
  pair,            // takes two integers
  level,           // takes a level of the log, TRACE … FATAL
  may_have_value,  // takes a value only after an equals sign
};
enum class Range { any, at_least_0, at_least_1, zero_to_1 };
enum class Written { as_given, mebibytes, as_flag, inverted_flag, when_true };
// Which runs of horovodrun a flag is for.
enum class Use {
  any_job,         // ranks, and also the probes of --preflight and the stagers of --stage
  whole_job_only,  // for the ranks alone: probes and stagers do not get it
  elastic_job,     // refused in a job that is not elastic
  some_targets,    // read by some targets alone, which name it among their own_flags (targets/target.hpp)
  job_script,      // refused without --jobscript
  question,        // only asks for information, and no job is started; so no file of settings may have it
};

// `use` has no value of its own, so the compiler refuses a row without it.
struct FlagRow {
  const char* name = "";       // the name that Horovod gives to this value; get() takes it
  const char* spellings = "";  // all spellings of the flag, separated by blanks
  const char* negations = "";  // negative forms of a tristate; else empty
  Kind kind = Kind::toggle;
  Use use;
  const char* otherwise = nullptr;  // the value if the flag is given without one; such a flag takes a value only after
                                    // '='
  Range range = Range::any;
  const char* variable = nullptr;  // the environment variable that the flag sets for the ranks; null: none
  Written written = Written::as_given;
  const char* needs = nullptr;  // the variable is set only together with this flag; null: always
  const char* values = "";      // for completion: the possible words, or <file>, <folder> or <host>
  const char* help = "";
};
std::span<const FlagRow> flag_rows();

// Where the value of a flag or variable comes from.
struct Origin {
  enum class Layer { nowhere, flag, config_file, user, site } layer = Layer::nowhere;
  std::string file{};        // of all layers but flags
  int line = 0;              // 0: the whole file
  std::string text() const;  // "flag"; "FILE, line 3"; empty for a flag that was not given
  const char* name() const;  // of the layer: "default", "flag", "config-file", "user" or "site"
};

// The values that were given, by name. Booleans are "1" and "0". Lists and pairs are comma-separated.
class Flags {
 public:
  bool has(std::string_view name) const { return values_.contains(name); }
  std::string get(std::string_view name) const;  // the value of a flag; empty if it was not given
  int number(std::string_view name, int otherwise) const;
  bool is_set(std::string_view name) const { return get(name) == "1"; }
  // `origin` tells where the value comes from; --show-config prints it.
  void set(std::string name, std::string value, Origin origin = {Origin::Layer::flag}) {
    origins_[name] = std::move(origin);
    values_[std::move(name)] = std::move(value);
  }
  void forget(const std::string& name) { values_.erase(name); }
  Origin origin(std::string_view name) const;

  std::vector<std::string> command;  // the command to run
  std::vector<std::string> notices;  // notices for the user about deprecated spellings
  // The variables that --config-file sets by their own names, and the line of each.
  struct Variable {
    std::string value;
    Origin origin;
  };
  std::map<std::string, Variable> variables;

 private:
  std::map<std::string, Origin, std::less<>> origins_;
  std::map<std::string, std::string, std::less<>> values_;
};

// `arguments` does not contain the program's own name. Fails on unknown or contradictory flags, and on values that are
// malformed or out of range.
Result<Flags> parse_flags(std::span<const char* const> arguments);

// Returns the flag with this spelling: "--container", "-np". A long spelling may come without its dashes: "container".
// Returns null if there is no such flag.
const FlagRow* flag_named(std::string_view word);
// Returns the last spelling of the flag, such as "--num-proc".
std::string spelling_of(const FlagRow& row);
std::vector<std::string> words_of(const char* text);  // splits the text at blanks
bool takes_value(Kind kind);

// Adds the values of a configuration file's text for flags that the command line does not have. `file_name` is used in
// messages.
Status apply_config_file(Flags& flags, std::string_view text, const std::string& file_name);

// Adds the values for flags that the command line, --config-file and the environment do not have: first from the user's
// file of settings, then from the site's.
Status apply_launcher_entries(Flags& flags, const Environment& environment, const SettingsFile& file);

// Returns the variables that the flags set for the ranks.
std::map<std::string, std::string> variables_of(const Flags& flags);
// Returns those that this flag sets.
std::map<std::string, std::string> variables_of(const FlagRow& row, const Flags& flags);

std::string help_text();
// Returns the name of a flag's value in the help text: "N", "TEXT"; empty if the flag takes no value.
std::string placeholder_of(const FlagRow& row);

// Checks one value against the row and returns it in the form that Flags keeps. `where` is how the user wrote the flag.
Result<std::string> check_value(const FlagRow& row, const std::string& where, const std::string& value);

}  // namespace hvd::launcher
