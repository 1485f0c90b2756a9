#include "launcher/session_folder.hpp"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>

namespace hvd::launcher {

SessionFolder::SessionFolder(const Environment& environment, std::vector<std::string>& notices) {
  std::string parent = environment.get("TMPDIR").value_or("");
  if (!parent.empty()) {
    std::error_code ignored;  // an empty path then, which cannot be used either
    parent = std::filesystem::absolute(parent, ignored).string();
    if (::access((parent + "/").c_str(), W_OK | X_OK) != 0) {
      notices.push_back(system_error("TMPDIR=" + *environment.get("TMPDIR") + " cannot be used", errno).message +
                        "; what horovodrun itself needs goes to /tmp");
      parent.clear();
    }
  }
  if (parent.empty()) parent = "/tmp";
  std::uint64_t noise = 0;
  (void)!::getrandom(&noise, sizeof noise, 0);
  char name[64];
  std::snprintf(name, sizeof name, "/horovodrun-%d-%016llx", static_cast<int>(::getpid()),
                static_cast<unsigned long long>(noise));
  path_ = parent + name;
}

Result<std::string> SessionFolder::make() {
  if (::mkdir(path_.c_str(), 0700) != 0)
    return system_error("the folder " + path_ + " for temporary files cannot be made (TMPDIR chooses another place)",
                        errno);
  return path_;
}

void SessionFolder::remove() noexcept {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace hvd::launcher
