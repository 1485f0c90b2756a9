#include "native/posix/machine/cgroup.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace hvd::posix {
namespace {

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

bool lists(const std::string& commas, const std::string& word) {
  return ("," + commas + ",").find("," + word + ",") != std::string::npos;
}

struct Mount {
  std::string root;   // the part of the hierarchy that is mounted
  std::string point;  // the folder where it is mounted
};

// Searches the lines of /proc/self/mountinfo: "36 35 98:0 /root /mount/point options [optional…] - type source
// superoptions"
std::optional<Mount> find_mount(const std::string& root, bool version_2) {
  for (const std::string& line : lines_of(root + "/proc/self/mountinfo")) {
    auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream head(line.substr(0, dash)), tail(line.substr(dash + 3));
    std::string id, parent, device, type, source, options;
    Mount mount;
    head >> id >> parent >> device >> mount.root >> mount.point;
    tail >> type >> source >> options;
    if (version_2 ? type == "cgroup2" : type == "cgroup" && lists(options, "memory")) return mount;
  }
  return std::nullopt;
}

// Searches the lines of /proc/self/cgroup: "4:memory:/path" (version 1) or "0::/path" (version 2).
std::optional<std::string> find_path(const std::string& root, bool version_2) {
  for (const std::string& line : lines_of(root + "/proc/self/cgroup")) {
    auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    if (version_2 ? line.substr(0, first) == "0" && controllers.empty() : lists(controllers, "memory"))
      return line.substr(second + 1);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> read_counter(const std::string& path, const std::string& name) {
  for (const std::string& line : lines_of(path)) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t value = 0;
    if (words >> key >> value && key == name) return value;
  }
  return std::nullopt;
}

// Returns nullopt if there is no limit: version 2 has "max", version 1 a number near 2^63.
std::optional<std::uint64_t> read_limit(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (!(file >> value) || value >= (std::uint64_t{1} << 60)) return std::nullopt;
  return value;
}

std::optional<MemoryGroup> read_version(const std::string& root, bool version_2) {
  auto mount = find_mount(root, version_2);
  auto path = find_path(root, version_2);
  if (!mount || !path) return std::nullopt;
  std::string below = *path;
  if (mount->root != "/" && below.starts_with(mount->root)) below.erase(0, mount->root.size());
  if (below == "/") below.clear();

  MemoryGroup group;
  group.path = *path;
  auto kills =
      read_counter(root + mount->point + below + (version_2 ? "/memory.events" : "/memory.oom_control"), "oom_kill");
  // The root group of version 2 has no such file, and a kernel that is too old has none either.
  if (!kills) return std::nullopt;
  group.oom_kills = *kills;
  for (std::string at = below;; at.erase(at.rfind('/'))) {
    auto limit = read_limit(root + mount->point + at + (version_2 ? "/memory.max" : "/memory.limit_in_bytes"));
    if (limit) group.limit_bytes = std::min(*limit, group.limit_bytes.value_or(*limit));
    if (at.empty()) break;
  }
  return group;
}

}  // namespace

std::optional<MemoryGroup> read_memory_group(const std::string& root) {
  if (auto group = read_version(root, false)) return group;
  return read_version(root, true);
}

}  // namespace hvd::posix
