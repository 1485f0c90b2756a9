#pragma once
// HMAC-SHA256 (RFC 2104, FIPS 180-4): proof that a message comes from somebody who knows a secret.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/bytes.hpp"

namespace hvd {

using Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  Sha256();
  void add(ConstBytes bytes);
  // Once, at the end.
  Digest finish();

 private:
  void take_block(const std::byte* block);

  std::array<std::uint32_t, 8> state_;
  std::array<std::byte, 64> block_{};
  std::uint64_t length_ = 0;
};

class Hmac {
 public:
  explicit Hmac(ConstBytes key);
  Hmac& add(ConstBytes bytes);
  template <typename Number>
  requires std::is_arithmetic_v<Number> Hmac& add(Number number) {
    return add(ConstBytes(reinterpret_cast<const std::byte*>(&number), sizeof number));
  }
  Digest finish();

 private:
  Sha256 inner_;
  std::array<std::byte, 64> outer_key_{};
};

// Takes as long for a wrong first byte as for a wrong last one.
bool equal_in_constant_time(ConstBytes a, ConstBytes b) noexcept;

}  // namespace hvd
