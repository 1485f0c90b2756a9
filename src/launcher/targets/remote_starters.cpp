#include "launcher/targets/remote_starters.hpp"

#include "native/posix/process.hpp"

namespace hvd::launcher {
namespace {

struct Row {
  const char* scheduler;  // its name in the registry of schedulers
  std::vector<std::string> words;
};

const Row rows[] = {
    {"lsf", {"blaunch"}},
    {"sge", {"qrsh", "-inherit", "-noshell"}},
};

}  // namespace

std::optional<std::vector<std::string>> remote_starter(const JobAround& around, const Environment& environment) {
  for (const Row& row : rows) {
    int code = 0;
    if (around.is_of(row.scheduler) &&
        posix::find_program(row.words[0], environment.get("PATH").value_or("/usr/bin:/bin"), code))
      return row.words;
  }
  return std::nullopt;
}

}  // namespace hvd::launcher
