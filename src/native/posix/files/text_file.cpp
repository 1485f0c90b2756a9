#include "native/posix/files/text_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "native/posix/files/file_descriptor.hpp"

namespace hvd::posix {

Result<std::string> read_text(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  ssize_t count = file ? 0 : -1;
  for (char chunk[4096]; file && (count = ::read(file.get(), chunk, sizeof chunk)) != 0;) {
    if (count > 0) text.append(chunk, static_cast<std::size_t>(count));
    else if (errno != EINTR) break;
  }
  if (count < 0) return system_error("the file " + path + " cannot be read", errno);
  return text;
}

}  // namespace hvd::posix
