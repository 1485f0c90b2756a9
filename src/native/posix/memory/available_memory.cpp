#include "native/posix/memory/available_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/text/number.hpp"

namespace hvd::posix {
namespace {

constexpr std::int64_t unknown = std::numeric_limits<std::int64_t>::max();

std::optional<std::int64_t> number_in_file(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) return std::nullopt;
  return number_in<std::int64_t>(text);  // the text "max" is not a number: there is no limit
}

// Returns the value of a "key value" line, as in /proc/meminfo and memory.stat.
std::optional<std::int64_t> field_in(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::int64_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

struct LimitFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // page cache that the kernel drops before it kills, in memory.stat
};
constexpr LimitFiles unified{"/memory.max", "/memory.current", "inactive_file"};
constexpr LimitFiles legacy{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};

// Finds the tightest limit among a group and all groups above it in its hierarchy.
void apply_limits(const std::string& mount, std::string group, const LimitFiles& files, AvailableMemory& found) {
  for (;;) {
    std::string folder = mount + (group == "/" ? "" : group);
    auto limit = number_in_file(folder + files.limit);
    auto usage = number_in_file(folder + files.usage);
    if (limit && usage && *limit < unknown / 2) {
      std::int64_t cache = field_in(folder + "/memory.stat", files.reclaimable).value_or(0);
      std::int64_t left = std::max<std::int64_t>(0, *limit - *usage + cache);
      if (left < found.bytes) {
        found.bytes = left;
        found.limited_by = "the memory limit of control group " + group + " (" + std::to_string(*limit) + " bytes)";
      }
    }
    if (group == "/" || group.empty()) return;
    auto slash = group.rfind('/');
    group = slash == 0 || slash == std::string::npos ? "/" : group.substr(0, slash);
  }
}

}  // namespace

AvailableMemory available_memory() {
  AvailableMemory found{unknown, "the machine"};
  if (auto kilobytes = field_in("/proc/meminfo", "MemAvailable:")) found.bytes = *kilobytes * 1024;
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // a line has the form "0::/path" or "4:memory:/path"
    auto first = line.find(':');
    auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    std::string group = line.substr(second + 1);
    if (controllers.empty()) apply_limits("/sys/fs/cgroup", group, unified, found);
    if (controllers == "memory") apply_limits("/sys/fs/cgroup/memory", group, legacy, found);
  }
  return found;
}

}  // namespace hvd::posix
