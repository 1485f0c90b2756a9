#include "native/posix/files/folder.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace hvd::posix {

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string end_of_links(const std::string& path) {
  constexpr int most_links = 40;  // as the kernel; a circle of links has no end
  std::filesystem::path at(path);
  for (int i = 0; i < most_links; ++i) {
    std::error_code failed;
    auto target = std::filesystem::read_symlink(at, failed);
    if (failed) break;
    at = at.parent_path() / target;  // an absolute target replaces the folder
  }
  return at.string();
}

bool is_folder(const std::string& path) {
  struct stat about {};
  return ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

}  // namespace hvd::posix
