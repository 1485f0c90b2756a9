#pragma once
// The folder for the temporary files of one job. Its name is chosen before anybody could die, so that both horovodrun
// and its agent can remove it, whoever is left.
#include <string>

#include "base/environment.hpp"
#include "base/result.hpp"

namespace hvd::launcher {

class SessionFolder {
 public:
  // Below $TMPDIR, else /tmp. Nothing is made yet.
  explicit SessionFolder(const Environment& environment);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder() { remove(); }

  const std::string& path() const noexcept { return path_; }
  Status make();  // for this user alone
  void remove() noexcept;

 private:
  std::string path_;
};

}  // namespace hvd::launcher
