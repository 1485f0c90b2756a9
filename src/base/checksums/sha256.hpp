#pragma once
// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104). Processes of a job use them to prove to each other that they know
// the job's secret, without sending the secret. By instructions of the processor where it has them.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/bytes.hpp"

namespace hvd {

using Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  enum class Way { by_instructions, plain };  // plain: also where the processor has instructions
  explicit Sha256(Way way = Way::by_instructions);
  void add(ConstBytes bytes);
  // Called once, at the end.
  Digest finish();

 private:
  void (*take_blocks_)(std::array<std::uint32_t, 8>& state, const std::byte* at, std::size_t blocks);
  std::array<std::uint32_t, 8> state_;
  std::array<std::byte, 64> block_{};
  std::uint64_t bytes_ = 0;
};

Digest sha256(ConstBytes bytes, Sha256::Way way = Sha256::Way::by_instructions);
Digest hmac_sha256(ConstBytes key, ConstBytes message);

// Compares two secrets. The time taken does not reveal where they differ.
bool are_equal_secrets(ConstBytes left, ConstBytes right);

}  // namespace hvd
