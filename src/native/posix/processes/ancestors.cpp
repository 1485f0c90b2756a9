#include "native/posix/processes/ancestors.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "native/posix/processes/process.hpp"

namespace hvd::posix {
namespace {

std::string contents(pid_t process, const char* file) {
  std::ifstream stream("/proc/" + std::to_string(process) + "/" + file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Environment environment_of(pid_t process) {
  Environment result;
  std::string text = contents(process, "environ");
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find('\0', at), text.size());
    result.set_entry(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
  return result;
}

}  // namespace

std::vector<Ancestor> ancestors_of_this_process() {
  std::vector<Ancestor> found;
  std::error_code failed;
  if (std::filesystem::read_symlink("/proc/self", failed) != std::to_string(::getpid())) return found;
  // The first process of a process namespace has the parent 0.
  for (pid_t process = ::getppid(); process > 0; process = parent_of(process).value_or(0)) {
    std::string name = contents(process, "comm"), title = contents(process, "cmdline");
    found.push_back(
        Ancestor{process, name.substr(0, name.find('\n')), title.substr(0, title.find('\0')), environment_of(process)});
  }
  return found;
}

std::size_t count_children(pid_t parent) {
  auto below = descendants_of(parent);
  return static_cast<std::size_t>(
      std::ranges::count_if(below, [&](const Descendant& one) { return one.parent == parent; }));
}

}  // namespace hvd::posix
