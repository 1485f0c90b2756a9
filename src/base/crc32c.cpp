#include "base/crc32c.hpp"

#include <array>
#include <cstring>

#include "base/processor.hpp"

#if defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#endif

namespace hvd {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// tables[k][b] is the effect of byte b on the remainder when k more bytes follow.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0x82f63b78u : 0u);
    tables[0][byte] = remainder;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}
constexpr Tables tables = make_tables();

std::uint32_t by_table(const unsigned char* at, std::size_t size, std::uint32_t crc) noexcept {
  for (; size >= 8; at += 8, size -= 8) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + 4, 4);
    low ^= crc;
    crc = tables[7][low & 0xff] ^ tables[6][(low >> 8) & 0xff] ^ tables[5][(low >> 16) & 0xff] ^ tables[4][low >> 24] ^
          tables[3][high & 0xff] ^ tables[2][(high >> 8) & 0xff] ^ tables[1][(high >> 16) & 0xff] ^
          tables[0][high >> 24];
  }
  for (; size > 0; ++at, --size) crc = (crc >> 8) ^ tables[0][(crc ^ *at) & 0xff];
  return crc;
}

#if defined(__x86_64__)
bool has_instruction() noexcept {
  return processor().has_sse4_2;
}
__attribute__((target("sse4.2,crc32"))) std::uint32_t by_instruction(const unsigned char* at, std::size_t size,
                                                                     std::uint32_t crc) noexcept {
  std::uint64_t wide = crc;
  for (; size >= 8; at += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; size > 0; ++at, --size) crc = __builtin_ia32_crc32qi(crc, *at);
  return crc;
}
#elif defined(__aarch64__)
bool has_instruction() noexcept {
  // the bit HWCAP_CRC32: the processor has the instruction
  static const bool has = (getauxval(AT_HWCAP) & (1u << 7)) != 0;
  return has;
}
__attribute__((target("+crc"))) std::uint32_t by_instruction(const unsigned char* at, std::size_t size,
                                                             std::uint32_t crc) noexcept {
  for (; size >= 8; at += 8, size -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    crc = __crc32cd(crc, word);
  }
  for (; size > 0; ++at, --size) crc = __crc32cb(crc, *at);
  return crc;
}
#else
bool has_instruction() noexcept {
  return false;
}
std::uint32_t by_instruction(const unsigned char* at, std::size_t size, std::uint32_t crc) noexcept {
  return by_table(at, size, crc);
}
#endif

const unsigned char* start_of(ConstBytes bytes) noexcept {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

std::uint32_t crc32c(ConstBytes bytes, std::uint32_t before) noexcept {
  if (!has_instruction()) return crc32c_by_table(bytes, before);
  return ~by_instruction(start_of(bytes), bytes.size(), ~before);
}

std::uint32_t crc32c_by_table(ConstBytes bytes, std::uint32_t before) noexcept {
  return ~by_table(start_of(bytes), bytes.size(), ~before);
}

}  // namespace hvd
