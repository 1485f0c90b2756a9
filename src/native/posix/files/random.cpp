#include "native/posix/files/random.hpp"

#include <sys/random.h>
#include <sys/types.h>

namespace hvd::posix {

void draw_random(Bytes into) {
  for (std::size_t have = 0; have < into.size();) {
    ssize_t got = ::getrandom(into.data() + have, into.size() - have, 0);
    if (got > 0) have += static_cast<std::size_t>(got);
  }
}

std::string random_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  draw_random(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::string random_hex(std::size_t bytes) {
  return hexadecimal(as_bytes(random_bytes(bytes)));
}

}  // namespace hvd::posix
