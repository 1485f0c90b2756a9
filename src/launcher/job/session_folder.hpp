#pragma once
// The folder for the temporary files of one job. Its name is chosen before anybody could die, so that both horovodrun
// and its agent can remove it, whoever is left.
#include <string>
#include <vector>

#include "base/environment.hpp"
#include "base/result.hpp"

namespace hvd::launcher {

class SessionFolder {
 public:
  // Below $TMPDIR if that can be used, else /tmp, and `notices` gets a line. Nothing is made yet.
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
