#pragma once
// Bytes that nobody can guess, from the kernel.
#include <string>

#include "base/bytes.hpp"

namespace hvd::posix {

void draw_random(Bytes into);
std::string random_bytes(std::size_t size);
std::string random_hex(std::size_t bytes);  // two letters for each byte

}  // namespace hvd::posix
