#include "launcher/job/session_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "native/posix/files/random.hpp"

namespace hvd::launcher {

SessionFolder::SessionFolder(const Environment& environment, std::vector<std::string>& notices) {
  std::string parent = environment.get("TMPDIR").value_or("");
  if (!parent.empty()) {
    std::error_code ignored;  // the error is ignored, because an empty path cannot be used anyway
    parent = std::filesystem::absolute(parent, ignored).string();
    if (::access((parent + "/").c_str(), W_OK | X_OK) != 0) {
      notices.push_back(system_error("TMPDIR=" + *environment.get("TMPDIR") + " cannot be used", errno).message +
                        "; what horovodrun itself needs goes to /tmp");
      parent.clear();
    }
  }
  if (parent.empty()) parent = "/tmp";
  path_ = parent + "/horovodrun-" + std::to_string(::getpid()) + "-" + posix::random_hex(8);
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
