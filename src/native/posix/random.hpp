#pragma once
// Bytes that nobody can guess, from the kernel.
#include <string>

#include "base/bytes.hpp"

namespace hvd::posix {

void draw_random(Bytes into);
std::string random_bytes(std::size_t size);

}  // namespace hvd::posix
