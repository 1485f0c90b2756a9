#pragma once
// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104). Processes of a job use them to prove to each other that they know
// the job's secret, without sending the secret. Meant for a few hundred bytes; not optimised for speed.
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
  // Called once, at the end.
  Digest finish();

 private:
  void take_block(const std::byte* block);
  std::array<std::uint32_t, 8> state_;
  std::array<std::byte, 64> block_{};
  std::uint64_t bytes_ = 0;
};

Digest sha256(ConstBytes bytes);
Digest hmac_sha256(ConstBytes key, ConstBytes message);

// Compares two secrets. The time taken does not reveal where they differ.
bool are_equal_secrets(ConstBytes left, ConstBytes right);

}  // namespace hvd
