#pragma once
// Jobs as programs inside them see them: variables, files, and the output of the scheduler's commands.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "schedulers/scheduler.hpp"

namespace hvd::schedulers {

using Texts = std::map<std::string, std::string, std::less<>>;

struct CapturedJob {
  std::string key;  // the scheduler's name in the registry
  Texts variables;
  Texts files{};
  Texts answers{};  // command, its words joined by blanks -> output
  std::vector<std::string> programs{};
  std::int64_t now_s = 1'700'000'000;
  // What the scheduler's reader should find, such as "job n1:4/8c/2g n2:4 (launch node batch5)".
  std::string expected{};
  long seconds_left = -1;  // time that is left; -1: the job does not tell
};

// Sources that show a scheduler this job and nothing else. `job` and `environment` must outlive them.
inline Sources sources_of(const CapturedJob& job, const Environment& environment) {
  auto joined = [](const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
  };
  return {environment,
          [&job](const std::string& path) -> Result<std::string> {
            auto found = job.files.find(path);
            if (found != job.files.end()) return found->second;
            return Error(ErrorCode::system, "the file " + path + " cannot be read: No such file or directory");
          },
          [&job, joined](const std::vector<std::string>& command) {
            auto found = job.answers.find(joined(command));
            return found == job.answers.end() ? std::string() : found->second;
          },
          [&job](const std::string& program) {
            return std::find(job.programs.begin(), job.programs.end(), program) != job.programs.end();
          },
          job.now_s};
}

const std::vector<CapturedJob>& captured_jobs();

}  // namespace hvd::schedulers
