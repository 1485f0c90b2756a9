#pragma once
#include <concepts>
#include <string>

namespace hvd {

// Returns a number of bytes for people, in the units of 1024: "12 bytes", "4.0 KiB", "300 MiB".
std::string size_text(double bytes);
template <std::integral Bytes>
std::string size_text(Bytes bytes) {
  return size_text(static_cast<double>(bytes));
}

}  // namespace hvd
