#pragma once
// Random bytes from the kernel, which nobody can guess.
#include <string>

#include "base/bytes.hpp"

namespace hvd::posix {

void draw_random(Bytes into);
std::string random_bytes(std::size_t size);
std::string random_hex(std::size_t bytes);  // two letters for each byte

}  // namespace hvd::posix
