#include "native/posix/text_file.hpp"

#include <cerrno>
#include <fstream>
#include <sstream>
#include <utility>

namespace hvd::posix {

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return system_error("the file " + path + " cannot be read", errno == 0 ? ENODATA : errno);
  return std::move(text).str();
}

}  // namespace hvd::posix
