#include "jobscripts/site.hpp"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>

#include "base/text/comma_list.hpp"
#include "base/text/number.hpp"
#include "base/text/trimmed.hpp"
#include "jobscripts/duration.hpp"

namespace hvd::jobscripts {

namespace {

enum class Kind { text, number, list, by_nodes };
struct Key {
  std::string_view name;
  Kind kind;
  int least = 1;                               // of a number
  std::initializer_list<const char*> words{};  // of a text that is one of these words
};
// sites/README.md explains these keys.
const Key keys[] = {
    {"title", Kind::text},
    {"scheduler", Kind::text},
    {"launcher", Kind::text},
    {"account", Kind::text, 0, {"required"}},
    {"account_flag", Kind::text, 0, {"-P", "-G"}},
    {"queue", Kind::by_nodes},
    {"queue_flag", Kind::text, 0, {"--partition", "--qos"}},
    {"constraint", Kind::text},
    {"longest", Kind::by_nodes},
    {"select", Kind::text},
    {"cpus_per_node", Kind::number},
    {"cpus_per_core", Kind::number},
    {"gpus_per_node", Kind::number, 0},
    {"container", Kind::text},
    {"container_mpi", Kind::text},
    {"ranks_per_node", Kind::number},
    {"cpu_bind", Kind::text},
    {"launcher_flag", Kind::list},
    {"directive", Kind::list},
    {"module", Kind::list},
    {"export", Kind::list},
    {"note", Kind::list},
};

// Who can start the ranks under a scheduler. The first one does if the site names none.
struct Launchers {
  std::string_view scheduler;
  std::initializer_list<const char*> names;
};
const Launchers launchers[] = {
    {"slurm", {"srun"}},
    {"lsf", {"horovodrun", "jsrun"}},
    {"pbs", {"horovodrun", "mpiexec"}},
};

const Launchers* launchers_of(std::string_view scheduler) {
  auto found = std::ranges::find(launchers, scheduler, &Launchers::scheduler);
  return found == std::end(launchers) ? nullptr : found;
}

bool is_one_of(std::string_view word, std::initializer_list<const char*> words) {
  return std::ranges::find(words, word) != words.end();
}

std::string either(std::initializer_list<const char*> words) {
  return joined(std::vector<std::string>(words.begin(), words.end()), " or ");
}

std::string known_keys() {
  std::vector<std::string> names;
  for (const Key& key : keys) names.emplace_back(key.name);
  return joined(names, ", ");
}

struct ByNodes {
  std::string_view value;
  int most_nodes = std::numeric_limits<int>::max();
};

// Reads "VALUE" or "VALUE to N nodes".
std::optional<ByNodes> read_by_nodes(std::string_view line) {
  ByNodes read{line};
  std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return read;
  read.value = line.substr(0, blank);
  std::string_view rest = trimmed(line.substr(blank));
  if (!rest.starts_with("to ") || !rest.ends_with(" nodes")) return std::nullopt;
  auto most = number_in<int>(trimmed(rest.substr(3, rest.size() - 3 - 6)));
  if (!most || *most < 1) return std::nullopt;
  read.most_nodes = *most;
  return read;
}

Status check_value(const Key& key, std::string_view value) {
  auto refuse = [](std::string text) { return Error(ErrorCode::invalid_argument, std::move(text)); };
  if (value.empty()) return refuse("expected a value after the =");
  if (key.kind == Kind::number) {
    auto number = number_in<int>(value);
    if (!number || *number < key.least)
      return refuse("expected a whole number of at least " + std::to_string(key.least));
  }
  if (key.words.size() > 0 && !is_one_of(value, key.words)) return refuse("expected " + either(key.words));
  if (key.kind != Kind::by_nodes) return {};
  auto read = read_by_nodes(value);
  if (!read) return refuse("expected one word, with 'to N nodes' behind it or nothing");
  if (key.name != "longest") return {};
  auto time = parse_duration(read->value);
  return time ? Status() : refuse(time.error().message);
}

Status put(Site& site, std::string_view line) {
  std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return Error(ErrorCode::invalid_argument, "expected 'key = value'");
  std::string_view name = trimmed(line.substr(0, equals)), value = trimmed(line.substr(equals + 1));
  const Key* key = std::find_if(std::begin(keys), std::end(keys), [&](const Key& one) { return one.name == name; });
  if (key == std::end(keys)) return Error(ErrorCode::invalid_argument, "expected one of the keys " + known_keys());
  auto& values = site.values[std::string(name)];
  if (key->kind != Kind::list && key->kind != Kind::by_nodes && !values.empty())
    return Error(ErrorCode::invalid_argument, "the key occurs twice: leave one of the two lines out");
  HVD_RETURN_IF_ERROR(check_value(*key, value));
  values.emplace_back(value);
  return {};
}

// True if the template of another scheduler has a place for the key, and that of this one has none.
bool is_of_other_schedulers(const Key& key, std::string_view scheduler) {
  const auto is_read = [&key](const CompiledFile& file) { return reads(file.name, key.name); };
  return key.kind == Kind::text && !reads(scheduler, key.name) && std::ranges::any_of(compiled_templates(), is_read);
}

}  // namespace

std::string Site::get(std::string_view key) const {
  auto found = values.find(key);
  return found == values.end() || found->second.empty() ? "" : found->second.front();
}

std::string Site::longest_of_all() const {
  std::string longest;
  auto found = values.find("longest");
  if (found == values.end()) return longest;
  for (const std::string& line : found->second) {
    auto read = read_by_nodes(line);
    if (!read) continue;
    auto time = parse_duration(read->value);
    if (time && (longest.empty() || *time > *parse_duration(longest))) longest = read->value;
  }
  return longest;
}

std::string Site::get_for(std::string_view key, int nodes) const {
  auto found = values.find(key);
  if (found == values.end()) return "";
  for (const std::string& line : found->second)
    if (auto read = read_by_nodes(line); read && nodes <= read->most_nodes) return std::string(read->value);
  return "";
}

int Site::number(std::string_view key, int otherwise) const {
  return number_in<int>(get(key)).value_or(otherwise);
}

std::string Site::launcher() const {
  std::string named = get("launcher");
  const Launchers* possible = launchers_of(scheduler);
  return !named.empty() || possible == nullptr ? named : *possible->names.begin();
}

Result<Site> parse_site(std::string_view text, std::string_view name) {
  Site site;
  site.name = name;
  for (int number = 1; !text.empty(); ++number) {
    std::size_t end = text.find('\n');
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    if (auto status = put(site, line); !status)
      return Error(ErrorCode::invalid_argument, "the site '" + site.name + "', line " + std::to_string(number) + " ('" +
                                                    std::string(line) + "'): " + status.error().message);
  }
  site.scheduler = site.get("scheduler");
  if (find_file(compiled_templates(), site.scheduler) == nullptr)
    return Error(ErrorCode::invalid_argument, "the site '" + site.name + "': expected one of the schedulers " +
                                                  names_of(compiled_templates()) + ", found '" + site.scheduler + "'");
  for (const Key& key : keys)
    if (!site.get(key.name).empty() && is_of_other_schedulers(key, site.scheduler))
      return Error(ErrorCode::invalid_argument, "the site '" + site.name + "': " + std::string(key.name) + " = " +
                                                    site.get(key.name) + ": expected a key for " + site.scheduler +
                                                    ", found one that its template does not read; leave it out, or "
                                                    "use 'directive' for a line of the scheduler");
  const Launchers* possible = launchers_of(site.scheduler);
  if (std::string launcher = site.launcher(); possible != nullptr && !is_one_of(launcher, possible->names))
    return Error(ErrorCode::invalid_argument, "the site '" + site.name + "': launcher: under " + site.scheduler +
                                                  ", expected " + either(possible->names) +
                                                  " or no such line, found '" + launcher + "'");
  return site;
}

const CompiledFile* find_file(std::span<const CompiledFile> files, std::string_view name) {
  auto found = std::ranges::find(files, name, &CompiledFile::name);
  return found == files.end() ? nullptr : &*found;
}

bool reads(std::string_view scheduler, std::string_view key) {
  const CompiledFile* file = find_file(compiled_templates(), scheduler);
  return file != nullptr && file->text.find("{{" + std::string(key) + "}}") != std::string_view::npos;
}

std::string names_of(std::span<const CompiledFile> files) {
  std::vector<std::string> names;
  for (const CompiledFile& file : files) names.emplace_back(file.name);
  return joined(names, ", ");
}

Result<Site> find_site(std::string_view name) {
  if (const CompiledFile* file = find_file(compiled_sites(), name)) return parse_site(file->text, name);
  return Error(ErrorCode::invalid_argument, "there is no site '" + std::string(name) + "'; the sites are " +
                                                names_of(compiled_sites()) +
                                                ", or the path of a file of your own (./my.site)");
}

}  // namespace hvd::jobscripts
