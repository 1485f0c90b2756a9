#pragma once
// Reads a small file of text as a whole.
#include <string>

#include "base/result.hpp"

namespace hvd::posix {

// Fails if the file cannot be read. An empty file has an empty text.
Result<std::string> read_text(const std::string& path);

}  // namespace hvd::posix
