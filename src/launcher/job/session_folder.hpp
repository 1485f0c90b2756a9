#pragma once
// The folder for the temporary files of one job. Its name is chosen before the agent is forked. So horovodrun and the
// agent both know it, and one of them can remove the folder if the other one was killed.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"

namespace hvd::launcher {

class SessionFolder {
 public:
  // Chooses a name below $TMPDIR. If $TMPDIR cannot be used, the name is below /tmp, and `notices` gets a line. The
  // constructor makes no folder yet.
  SessionFolder(const Environment& environment, std::vector<std::string>& notices);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder() { remove(); }

  const std::string& path() const noexcept { return path_; }
  Result<std::string> make();  // makes the folder, for this user alone; returns its path
  void remove() noexcept;

 private:
  std::string path_;
};

}  // namespace hvd::launcher
