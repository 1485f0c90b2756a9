#pragma once
// Byte buffers, with a writer and a reader of small records. Numbers have the byte order of the host: all machines of a
// job have the same byte order.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hvd {

using Buffer = std::vector<std::byte>;
using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// Appends to a buffer that the caller owns. The caller can so keep the buffer's capacity between uses.
class ByteWriter {
 public:
  explicit ByteWriter(Buffer& out) : out_(out) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { put_raw(&value, sizeof value); }
  void put_string(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_raw(text.data(), text.size());
  }
  void put_raw(const void* data, std::size_t size);

 private:
  Buffer& out_;
};

// Reads what ByteWriter wrote. A read past the end returns zeros and makes ok() false. One check of ok() at the end is
// therefore enough.
class ByteReader {
 public:
  explicit ByteReader(ConstBytes in) : in_(in) {}

  template <typename T>
  requires std::is_trivially_copyable_v<T> T get() {
    T value{};
    if (take(sizeof value)) std::memcpy(&value, in_.data() + at_ - sizeof value, sizeof value);
    return value;
  }
  std::string_view get_string() {
    auto size = get<std::uint32_t>();
    if (!take(size)) return {};
    return {reinterpret_cast<const char*>(in_.data() + at_ - size), size};
  }
  bool ok() const noexcept { return ok_; }
  bool at_end() const noexcept { return at_ == in_.size(); }

 private:
  bool take(std::size_t size) {
    ok_ = ok_ && size <= in_.size() - at_;
    if (ok_) at_ += size;
    return ok_;
  }
  ConstBytes in_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

inline ConstBytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string to_string(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
// Returns the bytes as text, two hexadecimal digits for each byte.
std::string hexadecimal(ConstBytes bytes);

}  // namespace hvd
