#pragma once
// The folder for the temporary files of one job. Its name is chosen before the agent is forked, so that either of
// them can remove it if the other was killed.
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/result.hpp"

namespace hvd::launcher {

class SessionFolder {
 public:
  // Chooses a name below $TMPDIR. If that cannot be used, it is below /tmp, and `notices` gets a line. Makes nothing
  // yet.
  SessionFolder(const Environment& environment, std::vector<std::string>& notices);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder() { remove(); }

  const std::string& path() const noexcept { return path_; }
  Result<std::string> make();  // for this user alone; its path
  void remove() noexcept;

 private:
  std::string path_;
};

}  // namespace hvd::launcher
