#include "launcher/options/flags.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>

#include "base/settings/config.hpp"
#include "base/text/number.hpp"
#include "base/text/spelling.hpp"
#include "jobscripts/site.hpp"

namespace hvd::launcher {
namespace {

Error misuse(std::string message) {
  return Error(ErrorCode::invalid_argument, std::move(message));
}

struct Spelling {
  std::string text;
  const FlagRow* row = nullptr;
  bool negative = false;
};

const std::vector<Spelling>& spellings() {
  static const std::vector<Spelling> all = [] {
    std::vector<Spelling> list;
    for (const FlagRow& row : flag_rows()) {
      for (std::string& word : words_of(row.spellings)) list.push_back({std::move(word), &row, false});
      for (std::string& word : words_of(row.negations)) list.push_back({std::move(word), &row, true});
    }
    return list;
  }();
  return all;
}

Error unknown(const std::string& flag) {
  // Users may shorten flags, so the user may have meant the beginning of a flag.
  std::vector<std::string_view> names;
  for (const Spelling& spelling : spellings())
    names.push_back(std::string_view(spelling.text).substr(0, flag.size() + 1));
  std::size_t count = names.size();
  for (std::size_t at = 0; at < count; ++at) names.push_back(spellings()[at].text);
  std::string_view nearest = nearest_name(flag, names);
  std::string meant;
  for (const Spelling& spelling : spellings())
    if (!nearest.empty() && meant.empty() && spelling.text.starts_with(nearest)) meant = spelling.text;
  return misuse("unknown flag " + flag + (meant.empty() ? "" : "; did you mean " + meant + "?") +
                " (horovodrun --help lists all; the command's own flags come after the command)");
}

// Finds a flag by its whole name, or by a beginning that only one flag has: "--fusion" means --fusion-threshold-mb,
// "-n" means -np.
Result<Spelling> find_flag(const std::string& flag) {
  std::vector<Spelling> candidates;
  for (const Spelling& spelling : spellings()) {
    if (spelling.text == flag) return spelling;
    if (flag != "-" && flag != "--" && spelling.text.starts_with(flag)) candidates.push_back(spelling);
  }
  bool same = std::all_of(candidates.begin(), candidates.end(), [&](const Spelling& s) {
    return s.row == candidates[0].row && s.negative == candidates[0].negative;
  });
  if (!candidates.empty() && same) return candidates[0];
  if (candidates.empty()) return unknown(flag);
  std::string list;
  for (const Spelling& candidate : candidates) list += (list.empty() ? "" : ", ") + candidate.text;
  return misuse("the flag " + flag + " is ambiguous: it could be " + list);
}

// Splits arguments like -p2222 and -Hhost:4: one letter and its value without a blank between them.
std::optional<std::pair<std::string, std::string>> split_glued(const std::string& argument) {
  if (argument.size() < 3 || argument[0] != '-' || argument[1] == '-' || argument[2] == '=') return std::nullopt;
  std::string flag = argument.substr(0, 2);
  if (flag != "-p" && flag != "-H" && flag != "-i") return std::nullopt;
  return std::pair{flag, argument.substr(2)};
}

bool is_deprecated(const std::string& flag) {
  return flag == "--log-hide-timestamp" || flag == "--no-log-hide-timestamp" || flag == "--network-interface";
}

const char* range_text(Range range) {
  switch (range) {
    case Range::any: return "";
    case Range::at_least_0: return " of at least 0";
    case Range::at_least_1: return " of at least 1";
    case Range::zero_to_1: return " from 0 to 1";
  }
  return "";
}

bool in_range(Range range, double value) {
  switch (range) {
    case Range::any: return true;
    case Range::at_least_0: return value >= 0;
    case Range::at_least_1: return value >= 1;
    case Range::zero_to_1: return value >= 0 && value <= 1;
  }
  return true;
}

// Prints a number as Python does, because scripts compare the texts: 20 is "20.0".
std::string python_float(double value) {
  char text[64];
  double magnitude = std::abs(value);
  bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  auto end =
      std::to_chars(text, text + sizeof text, value, plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string result(text, end.ptr);
  if (plain && result.find('.') == std::string::npos) result += ".0";
  return result;
}

template <typename Number>
std::optional<Number> parse(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  return number_in<Number>(text);
}

// Returns what the variable gets for the flag's value.
std::string written_value(const FlagRow& row, const std::string& value) {
  if (row.written == Written::mebibytes) return std::to_string(parse<std::int64_t>(value).value_or(0) << 20);
  if (row.written == Written::inverted_flag) return value == "1" ? "0" : "1";
  return value;
}

Result<std::string> check_form(const FlagRow& row, const std::string& where, const std::string& value) {
  auto wrong = [&](const std::string& expected) {
    return misuse(where + " must be " + expected + range_text(row.range) + ", not '" + value + "'");
  };
  switch (row.kind) {
    case Kind::integer: {
      auto number = parse<int>(value);
      if (!number || !in_range(row.range, *number)) return wrong("a whole number");
      return std::to_string(*number);
    }
    case Kind::number: {
      auto number = parse<double>(value);
      if (!number || !std::isfinite(*number) || !in_range(row.range, *number)) return wrong("a number");
      return python_float(*number);
    }
    case Kind::pair: {
      auto comma = value.find(',');
      auto first = parse<int>(std::string_view(value).substr(0, comma));
      auto second = comma == std::string::npos ? std::nullopt : parse<int>(std::string_view(value).substr(comma + 1));
      if (!first || !second || !in_range(row.range, *first) || !in_range(row.range, *second))
        return wrong("two whole numbers");
      return value;
    }
    case Kind::level:
      for (const char* level : {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"})
        if (value == level) return value;
      return wrong("TRACE, DEBUG, INFO, WARNING, ERROR or FATAL");
    case Kind::text:
    case Kind::list:
      if (value.empty()) return wrong("a text that is not empty");
      return value;
    case Kind::action:
    case Kind::toggle:
    case Kind::may_have_value:
    case Kind::tristate: break;
  }
  if (value != "0" && value != "1") return wrong("true or false");
  return value;
}

// Checks that a value which fits the flag fits its variable, too. Otherwise every rank would refuse it.
Result<std::string> if_ranks_take_it(const FlagRow& row, const std::string& where, std::string value) {
  std::string fault = row.variable == nullptr ? "" : fault_in(row.variable, written_value(row, value));
  if (fault.empty()) return value;
  return misuse(where + " " + value + " is out of range: the ranks would get " + fault);
}

// Flags that describe a job script are an error without --jobscript.
Status check_script_flags(const Flags& flags) {
  if (flags.has("jobscript")) return {};
  for (const FlagRow& row : flag_rows())
    if (row.use == Use::job_script && flags.has(row.name))
      return misuse("the flag " + words_of(row.spellings).back() + " needs --jobscript with one of " +
                    jobscripts::names_of(jobscripts::compiled_templates()));
  return {};
}

// The bounds of --blacklist-cooldown-range, which Flags keeps with a comma between them.
Status check_cooldown(const Flags& flags) {
  if (!flags.has("cooldown_range")) return {};
  constexpr int longest = 3600;
  const std::string text = flags.get("cooldown_range");
  const std::size_t comma = text.find(',');
  const int lower = number_in<int>(text.substr(0, comma)).value_or(0);
  const int upper = number_in<int>(text.substr(comma + 1)).value_or(0);
  if (lower >= 1 && lower <= upper && upper <= longest) return {};
  return misuse(
      "--blacklist-cooldown-range takes two numbers of seconds from 1 to 3600, the smaller one first, but got " +
      text.substr(0, comma) + " " + text.substr(comma + 1));
}

Status check_spares(const Flags& flags) {
  const std::string given = flags.get("spares");
  if (!flags.has("spares") || given == "auto" || number_in<int>(given).value_or(-1) >= 0) return {};
  return misuse("--spares takes a number from 0 on, or auto, but got " + given);
}

// What would have no effect is an error, and so are numbers of ranks that contradict each other.
Status check_elastic_flags(const Flags& flags) {
  if (!flags.has("min_num_proc") && !flags.has("host_discovery_script")) {
    for (const FlagRow& row : flag_rows())
      if (row.use == Use::elastic_job && flags.has(row.name))
        return misuse("the flag " + words_of(row.spellings).front() +
                      " is for elastic jobs: it needs --min-np, or --host-discovery-script");
    return {};
  }
  if (flags.has("slots") && !flags.has("host_discovery_script"))
    return misuse(
        "--slots-per-host is for hosts that --host-discovery-script finds: give -H with slots, as in -H a:2,b:2");
  const int least = flags.number("min_num_proc", 1);
  const int most = flags.number("max_num_proc", std::numeric_limits<int>::max());
  const int first = flags.number("num_proc", least);
  if (least > first)
    return misuse("--min-np " + std::to_string(least) + " is more than -np " + std::to_string(first) +
                  ": the job begins with -np ranks");
  if (first > most)
    return misuse("--max-np " + std::to_string(most) + " is less than " +
                  (flags.has("num_proc") ? "-np " : "--min-np ") + std::to_string(first));
  HVD_RETURN_IF_ERROR(check_spares(flags));
  return check_cooldown(flags);
}

Status check_contradictions(const Flags& flags) {
  HVD_RETURN_IF_ERROR(check_script_flags(flags));
  auto exclusive = [&](std::initializer_list<const char*> names, const char* text) -> Status {
    auto given = std::count_if(names.begin(), names.end(), [&](const char* name) { return flags.has(name); });
    if (given > 1) return misuse(text);
    return {};
  };
  HVD_RETURN_IF_ERROR(exclusive({"hosts", "hostfile", "host_discovery_script"},
                                "-H, --hostfile and --host-discovery-script exclude each other: give one of them"));
  HVD_RETURN_IF_ERROR(exclusive({"stage", "container"},
                                "--stage and --container exclude each other: an image has an environment of its own"));
  HVD_RETURN_IF_ERROR(exclusive({"use_gloo", "use_mpi", "use_jsrun"},
                                "--gloo, --mpi and --jsrun exclude each other: give one of them"));
  return check_elastic_flags(flags);
}

// Reads one flag at arguments[at], with its value. Moves `at` past both.
Status parse_one(std::span<const char* const> arguments, std::size_t& at, Flags& flags) {
  std::string argument = arguments[at++];
  std::optional<std::string> value;
  if (auto equals = argument.find('='); equals != std::string::npos && !split_glued(argument)) {
    value = argument.substr(equals + 1);
    argument.resize(equals);
  }
  auto found = find_flag(argument);
  if (!found && !value) {
    if (auto glued = split_glued(argument)) {
      argument = glued->first;
      value = glued->second;
      found = find_flag(argument);
    }
  }
  if (!found) return found.error();
  const FlagRow& row = *found->row;
  argument = found->text;
  if (is_deprecated(found->text))
    flags.notices.push_back("the flag " + found->text + " is deprecated: use " +
                            (found->text.find("log") == std::string::npos
                                 ? "--network-interfaces, with commas between them"
                                 : "--log-with-timestamp or --log-without-timestamp"));
  if (row.kind == Kind::may_have_value) return flags.set(row.name, value.value_or("")), Status();
  if (!takes_value(row.kind)) {
    if (value) return misuse("the flag " + argument + " takes no value, but '" + *value + "' was given");
    const char* meant = found->negative ? "0" : "1";
    if (flags.has(row.name) && flags.get(row.name) != meant)
      return misuse("the flag " + argument + " contradicts one before it: give one of the two");
    flags.set(row.name, meant);
    return {};
  }
  int wanted = row.kind == Kind::pair ? 2 : 1;
  if (!value && row.otherwise != nullptr) value = row.otherwise;
  if (!value) {
    if (arguments.size() - at < static_cast<std::size_t>(wanted))
      return misuse("the flag " + argument + " needs " + (wanted == 2 ? "two values" : "a value") + ": " + row.help);
    value = arguments[at++];
    if (wanted == 2) *value += std::string(",") + arguments[at++];
  }
  auto checked = check_value(row, argument, *value);
  if (!checked) return checked.error();
  if (row.kind == Kind::list && flags.has(row.name)) *checked = flags.get(row.name) + "," + *checked;
  flags.set(row.name, *checked);
  return {};
}

}  // namespace

std::vector<std::string> words_of(const char* text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

bool takes_value(Kind kind) {
  return kind != Kind::action && kind != Kind::toggle && kind != Kind::tristate && kind != Kind::may_have_value;
}

const FlagRow* flag_named(std::string_view word) {
  for (const FlagRow& row : flag_rows())
    for (const std::string& spelling : words_of(row.spellings))
      if (spelling == word || (spelling.starts_with("--") && spelling.substr(2) == word)) return &row;
  return nullptr;
}

std::string spelling_of(const FlagRow& row) {
  for (const std::string& word : words_of(row.spellings))
    if (word.starts_with("--")) return word;
  return words_of(row.spellings).back();
}

std::string Origin::text() const {
  if (layer == Layer::flag) return "flag";
  return file + (line > 0 ? ", line " + std::to_string(line) : "");
}

const char* Origin::name() const {
  switch (layer) {
    case Layer::nowhere: return "default";
    case Layer::flag: return "flag";
    case Layer::config_file: return "config-file";
    case Layer::user: return "user";
    case Layer::site: break;
  }
  return "site";
}

Origin Flags::origin(std::string_view name) const {
  auto found = origins_.find(name);
  return found == origins_.end() ? Origin{} : found->second;
}

std::string Flags::get(std::string_view name) const {
  auto found = values_.find(name);
  return found == values_.end() ? std::string() : found->second;
}

int Flags::number(std::string_view name, int otherwise) const {
  return parse<int>(get(name)).value_or(otherwise);
}

Result<std::string> check_value(const FlagRow& row, const std::string& where, const std::string& value) {
  auto checked = check_form(row, where, value);
  return checked ? if_ranks_take_it(row, where, *checked) : checked;
}

Result<Flags> parse_flags(std::span<const char* const> arguments) {
  Flags flags;
  std::size_t at = 0;
  while (at < arguments.size()) {
    std::string_view argument = arguments[at];
    if (argument == "--") {
      ++at;
      break;
    }
    if (!argument.starts_with('-') || argument == "-") break;
    HVD_RETURN_IF_ERROR(parse_one(arguments, at, flags));
  }
  flags.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
  HVD_RETURN_IF_ERROR(check_contradictions(flags));
  return flags;
}

std::map<std::string, std::string> variables_of(const FlagRow& row, const Flags& flags) {
  if (row.variable == nullptr || !flags.has(row.name)) return {};
  if (row.needs != nullptr && (!flags.has(row.needs) || flags.get(row.needs) == "0")) return {};
  if (row.written == Written::when_true && !flags.is_set(row.name)) return {};
  std::string value = written_value(row, flags.get(row.name));
  std::map<std::string, std::string> variables{{row.variable, value}};
  // Some programs read here the interface of Horovod's own transport. The variable holds only one interface.
  if (std::string_view(row.name) == "nics") variables["HOROVOD_GLOO_IFACE"] = value.substr(0, value.find(','));
  return variables;
}

std::map<std::string, std::string> variables_of(const Flags& flags) {
  std::map<std::string, std::string> variables;
  for (const auto& [name, variable] : flags.variables) variables[name] = variable.value;
  for (const FlagRow& row : flag_rows())
    for (auto& [name, value] : variables_of(row, flags)) variables[name] = value;
  return variables;
}

std::string placeholder_of(const FlagRow& row) {
  switch (row.kind) {
    case Kind::integer: return "N";
    case Kind::number: return "X";
    case Kind::pair: return "MIN MAX";
    case Kind::text:
    case Kind::list:
    case Kind::level: return "TEXT";
    case Kind::may_have_value: return "[=TEXT]";
    case Kind::action:
    case Kind::toggle:
    case Kind::tristate: break;
  }
  return {};
}

std::string help_text() {
  std::string text =
      "Starts N copies of a program on this machine, as the ranks of one job:\n\n"
      "    horovodrun -np N [flags] command [arguments]\n\n"
      "Flags:\n";
  for (const FlagRow& row : flag_rows()) {
    std::string left = "  ";
    for (const std::string& word : words_of(row.spellings)) left += (left.size() > 2 ? ", " : "") + word;
    for (const std::string& word : words_of(row.negations)) left += ", " + word;
    if (auto value = placeholder_of(row); !value.empty()) left += (row.kind == Kind::may_have_value ? "" : " ") + value;
    text += left + "\n        " + row.help;
    if (row.variable != nullptr) text += std::string(" (sets ") + row.variable + ")";
    text += "\n";
  }
  text += "\nVariables that horovodrun or the ranks go by, with their defaults:\n";
  for (const KnobRow& knob : knobs()) {
    if (!knob.is_for_users()) continue;
    text += std::string("  ") + knob.name + "=" + knob.default_value + "\n        " + knob.meaning + "\n";
  }
  text +=
      "\nThe job ends when all ranks have ended. If one fails, the others are ended (SIGTERM, after\n"
      "HOROVOD_TERMINATION_GRACE_SECONDS, 5 by default, SIGKILL), and horovodrun exits with its code, or 128 and the\n"
      "signal's number. Exit code 2: wrong usage; 127, 126: the command does not exist, or cannot be executed.\n"
      "SIGINT, SIGTERM and SIGHUP end the job (a second one: at once); SIGUSR1, SIGUSR2, SIGQUIT, SIGTSTP and SIGCONT "
      "go\n"
      "to the ranks. Standard input goes to rank 0. OMP_NUM_THREADS, unless set, becomes each rank's number of "
      "cores.\n";
  return text;
}

}  // namespace hvd::launcher
