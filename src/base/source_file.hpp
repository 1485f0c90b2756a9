#pragma once
// Gives the name of a source file for messages: without its folder, which is one of the machine that compiled it.
#include <source_location>
#include <string_view>

namespace hvd {

constexpr std::string_view source_file_of(const std::source_location& where) {
  std::string_view path = where.file_name();
  return path.substr(path.rfind('/') + 1);
}

}  // namespace hvd
