#pragma once
// The command line of horovodrun: a table of flags, and what a command line (and a configuration file) makes of it.
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
  tristate,  // given, given in its negative form, or not
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
  const char* name = "";       // Horovod's name of the value, by which it is asked for
  const char* spellings = "";  // separated by blanks
  const char* negations = "";  // of a tristate; else empty
  Kind kind = Kind::toggle;
  const char* otherwise = nullptr;  // value of a flag without one; such a flag takes its value only after '='
  Range range = Range::any;
  const char* variable = nullptr;  // what it sets for the ranks; null: nothing
  Written written = Written::as_given;
  const char* needs = nullptr;    // only together with this one is the variable set; null: always
  const char* key = nullptr;      // in the configuration file, "section.key"; null: none
  const char* lacking = nullptr;  // why it cannot be used in this version; null: it can
  const char* help = "";
};
std::span<const FlagRow> flag_rows();

// The values given, by name; booleans are "1" and "0", lists and pairs are comma-separated.
class Flags {
 public:
  bool has(std::string_view name) const { return values_.contains(name); }
  std::string get(std::string_view name) const;  // empty if not given
  int number(std::string_view name, int otherwise) const;
  bool is_set(std::string_view name) const { return get(name) == "1"; }
  void set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }

  std::vector<std::string> command;  // what to run
  std::vector<std::string> notices;  // about deprecated spellings, for the user

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// `arguments` without the program's own name. Fails on what is unknown, malformed, out of range or contradictory.
Result<Flags> parse_flags(std::span<const char* const> arguments);

// Fills in what the command line left open, from the text of a configuration file; `file_name` is for messages.
Status apply_config_file(Flags& flags, std::string_view text, const std::string& file_name);

// The variables that the flags set for the ranks.
std::map<std::string, std::string> variables_of(const Flags& flags);

// Fails if a flag was given that this version has no use for yet.
Status refuse_what_is_lacking(const Flags& flags);

std::string help_text();

// Checks one value against the row and brings it into the form that Flags keeps; `where` is how the user wrote it.
Result<std::string> check_value(const FlagRow& row, const std::string& where, const std::string& value);

}  // namespace hvd::launcher
