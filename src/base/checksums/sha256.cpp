#include "base/checksums/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace hvd {
namespace {

// The constants of FIPS 180-4, 4.2.2.
constexpr std::uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t load_big_endian(const std::byte* at) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<std::uint32_t>(at[i]);
  return value;
}

template <typename Number>
void store_big_endian(std::byte* at, Number value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    at[i] = static_cast<std::byte>(value >> (8 * (sizeof value - 1 - i)) & 0xff);
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::add(ConstBytes bytes) {
  while (!bytes.empty()) {
    std::size_t have = bytes_ % block_.size();
    std::size_t taken = std::min(block_.size() - have, bytes.size());
    std::memcpy(block_.data() + have, bytes.data(), taken);
    bytes_ += taken;
    bytes = bytes.subspan(taken);
    if (have + taken == block_.size()) take_block(block_.data());
  }
}

Digest Sha256::finish() {
  std::array<std::byte, 72> padding{std::byte{0x80}};
  std::uint64_t bits = bytes_ * 8;
  std::size_t have = bytes_ % block_.size();
  std::size_t zeros_end = (have < 56 ? 56 : 120) - have;
  store_big_endian(padding.data() + zeros_end, bits);
  add({padding.data(), zeros_end + sizeof bits});
  Digest digest;
  for (std::size_t i = 0; i < state_.size(); ++i) store_big_endian(digest.data() + 4 * i, state_[i]);
  return digest;
}

// The computation of FIPS 180-4, 6.2.2.
void Sha256::take_block(const std::byte* block) {
  std::uint32_t w[64];
  for (std::size_t t = 0; t < 16; ++t) w[t] = load_big_endian(block + 4 * t);
  for (std::size_t t = 16; t < 64; ++t) {
    std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (std::size_t t = 0; t < 64; ++t) {
    std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[t] + w[t];
    std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::uint32_t sums[] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state_.size(); ++i) state_[i] += sums[i];
}

Digest sha256(ConstBytes bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.finish();
}

Digest hmac_sha256(ConstBytes key, ConstBytes message) {
  std::array<std::byte, 64> padded{};
  Digest shortened;
  if (key.size() > padded.size()) {
    shortened = sha256(key);
    key = shortened;
  }
  if (!key.empty()) std::memcpy(padded.data(), key.data(), key.size());
  auto mixed_with = [&](std::byte mask) {
    auto result = padded;
    for (std::byte& byte : result) byte ^= mask;
    return result;
  };
  Sha256 inner, outer;
  inner.add(mixed_with(std::byte{0x36}));
  inner.add(message);
  outer.add(mixed_with(std::byte{0x5c}));
  outer.add(inner.finish());
  return outer.finish();
}

bool are_equal_secrets(ConstBytes left, ConstBytes right) {
  if (left.size() != right.size()) return false;
  volatile std::byte difference{0};
  for (std::size_t i = 0; i < left.size(); ++i) difference = difference | (left[i] ^ right[i]);
  return difference == std::byte{0};
}

}  // namespace hvd
