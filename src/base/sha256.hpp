#pragma once
// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104): with them processes of a job prove to each other that they know its
// secret without sending it. For a few hundred bytes at a time; not made for speed.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

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
  std::uint64_t bytes_ = 0;
};

Digest sha256(ConstBytes bytes);
Digest hmac_sha256(ConstBytes key, ConstBytes message);

// The time that it takes does not reveal where they differ.
bool are_equal_secrets(ConstBytes left, ConstBytes right);

}  // namespace hvd
