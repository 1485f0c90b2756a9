#include "base/checksums/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/processor.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#include <sys/auxv.h>
#endif

namespace hvd {
namespace {

constexpr std::size_t block_bytes = 64;

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

using State = std::array<std::uint32_t, 8>;

// The computation of FIPS 180-4, 6.2.2.
void take_block(State& state, const std::byte* block) {
  std::uint32_t w[64];
  for (std::size_t t = 0; t < 16; ++t) w[t] = load_big_endian(block + 4 * t);
  for (std::size_t t = 16; t < 64; ++t) {
    std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t t = 0; t < 64; ++t) {
    std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[t] + w[t];
    std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::uint32_t sums[] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += sums[i];
}

void take_plainly(State& state, const std::byte* at, std::size_t blocks) {
  for (; blocks > 0; --blocks, at += block_bytes) take_block(state, at);
}

#if defined(__x86_64__)
bool has_instructions() noexcept {
  return processor().has_sha;
}

// Each pair of instructions does four rounds. They keep the state as the words A B E F and C D G H.
__attribute__((target("sha,sse4.1,ssse3"))) void take_by_instructions(State& state, const std::byte* at,
                                                                      std::size_t blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const auto load = [](const void* from) __attribute__((target("sha,sse4.1,ssse3"))) {
    return _mm_loadu_si128(static_cast<const __m128i*>(from));
  };
  const __m128i cdab = _mm_shuffle_epi32(load(state.data()), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(load(state.data() + 4), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; blocks > 0; --blocks, at += block_bytes) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m128i& own = w[i % 4];
      if (i < 4) own = _mm_shuffle_epi8(load(at + 16 * i), big_endian);
      else
        own = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(own, w[(i + 1) % 4]),
                                                 _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4)),
                                   w[(i + 3) % 4]);
      const __m128i sum = _mm_add_epi32(own, load(round_constants + 4 * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data()), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state.data() + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#elif defined(__aarch64__)
bool has_instructions() noexcept {
  // the bit HWCAP_SHA2: the processor has the instructions
  static const bool has = (getauxval(AT_HWCAP) & (1u << 6)) != 0;
  return has;
}

__attribute__((target("+crypto"))) void take_by_instructions(State& state, const std::byte* at, std::size_t blocks) {
  uint32x4_t abcd = vld1q_u32(state.data()), efgh = vld1q_u32(state.data() + 4);
  for (; blocks > 0; --blocks, at += block_bytes) {
    const uint32x4_t abcd_before = abcd, efgh_before = efgh;
    uint32x4_t w[4];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      uint32x4_t& own = w[i % 4];
      if (i < 4) own = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(at) + 16 * i)));
      else own = vsha256su1q_u32(vsha256su0q_u32(own, w[(i + 1) % 4]), w[(i + 2) % 4], w[(i + 3) % 4]);
      const uint32x4_t sum = vaddq_u32(own, vld1q_u32(round_constants + 4 * i));
      const uint32x4_t before = abcd;
      abcd = vsha256hq_u32(abcd, efgh, sum);
      efgh = vsha256h2q_u32(efgh, before, sum);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state.data(), abcd);
  vst1q_u32(state.data() + 4, efgh);
}
#else
bool has_instructions() noexcept {
  return false;
}
void take_by_instructions(State& state, const std::byte* at, std::size_t blocks) {
  take_plainly(state, at, blocks);
}
#endif

}  // namespace

Sha256::Sha256(Way way)
    : take_blocks_(way == Way::plain || !has_instructions() ? take_plainly : take_by_instructions),
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::add(ConstBytes bytes) {
  const std::size_t have = bytes_ % block_bytes;
  bytes_ += bytes.size();
  if (have > 0) {
    const std::size_t taken = std::min(block_bytes - have, bytes.size());
    std::copy_n(bytes.begin(), taken, block_.begin() + static_cast<std::ptrdiff_t>(have));
    bytes = bytes.subspan(taken);
    if (have + taken < block_bytes) return;
    take_blocks_(state_, block_.data(), 1);
  }
  const std::size_t whole = bytes.size() / block_bytes;
  if (whole > 0) take_blocks_(state_, bytes.data(), whole);
  bytes = bytes.subspan(whole * block_bytes);
  std::copy(bytes.begin(), bytes.end(), block_.begin());
}

Digest Sha256::finish() {
  std::array<std::byte, 72> padding{std::byte{0x80}};
  std::uint64_t bits = bytes_ * 8;
  std::size_t have = bytes_ % block_bytes;
  std::size_t zeros_end = (have < 56 ? 56 : 120) - have;
  store_big_endian(padding.data() + zeros_end, bits);
  add({padding.data(), zeros_end + sizeof bits});
  Digest digest;
  for (std::size_t i = 0; i < state_.size(); ++i) store_big_endian(digest.data() + 4 * i, state_[i]);
  return digest;
}

Digest sha256(ConstBytes bytes, Sha256::Way way) {
  Sha256 hash(way);
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
