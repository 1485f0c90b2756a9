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

namespace hvd::launcher {

enum class Kind {
  action,    // "--help": recorded as "1"
  toggle,    // given or not
  tristate,  // given in its positive form, in its negative form, or not given
  integer,
  number,
  text,
  list,   // may be repeated; comma-separated values are joined
  pair,   // takes two integers
  level,  // TRACE … FATAL
};
enum class Range { any, at_least_0, at_least_1, zero_to_1 };
enum class Written { as_given, mebibytes, as_flag, inverted_flag, when_true };

struct FlagRow {
  const char* name = "";       // Horovod's name of the value; get() takes it
  const char* spellings = "";  // separated by blanks
  const char* negations = "";  // negative forms of a tristate; else empty
  Kind kind = Kind::toggle;
  Range range = Range::any;
  const char* variable = nullptr;  // the variable that it sets for the ranks; null: none
  Written written = Written::as_given;
  const char* needs = nullptr;    // the variable is set only together with this flag; null: always
  const char* key = nullptr;      // its key in the configuration file, "section.key"; null: none
  const char* lacking = nullptr;  // why this version cannot use it; null: it can
  const char* help = "";
};
std::span<const FlagRow> flag_rows();

// The values that were given, by name. Booleans are "1" and "0". Lists and pairs are comma-separated.
class Flags {
 public:
  bool has(std::string_view name) const { return values_.contains(name); }
  std::string get(std::string_view name) const;  // empty if not given
  int number(std::string_view name, int otherwise) const;
  bool is_set(std::string_view name) const { return get(name) == "1"; }
  void set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }

  std::vector<std::string> command;  // the command to run
  std::vector<std::string> notices;  // about deprecated spellings, for the user

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// `arguments` does not contain the program's own name. Fails on unknown or contradictory flags, and on values that are
// malformed or out of range.
Result<Flags> parse_flags(std::span<const char* const> arguments);

// Fills in what the command line left open, from the text of a configuration file. `file_name` is used in messages.
Status apply_config_file(Flags& flags, std::string_view text, const std::string& file_name);

// The variables that the flags set for the ranks.
std::map<std::string, std::string> variables_of(const Flags& flags);

// Fails if a flag was given that this version cannot use yet.
Status refuse_what_is_lacking(const Flags& flags);

std::string help_text();

// Checks one value against the row and returns it in the form that Flags keeps. `where` is how the user wrote the flag.
Result<std::string> check_value(const FlagRow& row, const std::string& where, const std::string& value);

}  // namespace hvd::launcher
