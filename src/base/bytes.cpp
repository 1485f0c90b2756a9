#include "base/bytes.hpp"

namespace hvd {

// This function is not inline, because GCC 12 warns of impossible overflows when it knows the size of a growing vector.
void ByteWriter::put_raw(const void* data, std::size_t size) {
  if (size == 0) return;
  std::size_t at = out_.size();
  out_.resize(at + size);
  std::memcpy(out_.data() + at, data, size);
}

std::string hexadecimal(ConstBytes bytes) {
  constexpr char letters[] = "0123456789abcdef";
  std::string text;
  for (std::byte byte : bytes) {
    text += letters[std::to_integer<unsigned>(byte) >> 4];
    text += letters[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace hvd
