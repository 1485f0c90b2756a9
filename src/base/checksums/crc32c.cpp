#include "base/checksums/crc32c.hpp"

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
#define HVD_WITH_INSTRUCTION __attribute__((target("sse4.2,crc32")))
bool has_instruction() noexcept {
  return processor().has_sse4_2;
}
HVD_WITH_INSTRUCTION inline std::uint32_t with_word(std::uint32_t crc, std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(__builtin_ia32_crc32di(crc, word));
}
HVD_WITH_INSTRUCTION inline std::uint32_t with_byte(std::uint32_t crc, unsigned char byte) noexcept {
  return __builtin_ia32_crc32qi(crc, byte);
}
#elif defined(__aarch64__)
#define HVD_WITH_INSTRUCTION __attribute__((target("+crc")))
bool has_instruction() noexcept {
  // the bit HWCAP_CRC32: the processor has the instruction
  static const bool has = (getauxval(AT_HWCAP) & (1u << 7)) != 0;
  return has;
}
HVD_WITH_INSTRUCTION inline std::uint32_t with_word(std::uint32_t crc, std::uint64_t word) noexcept {
  return __crc32cd(crc, word);
}
HVD_WITH_INSTRUCTION inline std::uint32_t with_byte(std::uint32_t crc, unsigned char byte) noexcept {
  return __crc32cb(crc, byte);
}
#endif

#if defined(HVD_WITH_INSTRUCTION)
// A processor sums one word in the time in which it can begin three. Therefore three stretches of this length are
// summed at once, and the remainder of each is carried over the stretches behind it.
constexpr std::size_t stretch_bytes = 1024;

using StretchTables = std::array<std::array<std::uint32_t, 256>, 4>;

// stretch_tables[k][b] is what a stretch of zeros makes of a remainder whose byte k is b and whose other bytes are 0.
constexpr StretchTables make_stretch_tables() {
  StretchTables result{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    std::uint32_t remainder = 1u << bit;
    for (std::size_t i = 0; i < stretch_bytes; ++i) remainder = (remainder >> 8) ^ tables[0][remainder & 0xff];
    for (std::size_t byte = 0; byte < 256; ++byte)
      if ((byte >> (bit % 8) & 1) != 0) result[bit / 8][byte] ^= remainder;
  }
  return result;
}
constexpr StretchTables stretch_tables = make_stretch_tables();

std::uint32_t over_a_stretch(std::uint32_t crc) noexcept {
  return stretch_tables[0][crc & 0xff] ^ stretch_tables[1][(crc >> 8) & 0xff] ^ stretch_tables[2][(crc >> 16) & 0xff] ^
         stretch_tables[3][crc >> 24];
}

std::uint64_t word_at(const unsigned char* at) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

HVD_WITH_INSTRUCTION std::uint32_t by_instruction(const unsigned char* at, std::size_t size,
                                                  std::uint32_t crc) noexcept {
  for (; size >= 3 * stretch_bytes; at += 3 * stretch_bytes, size -= 3 * stretch_bytes) {
    std::uint32_t second = 0;
    std::uint32_t third = 0;
    for (std::size_t i = 0; i < stretch_bytes; i += 8) {
      crc = with_word(crc, word_at(at + i));
      second = with_word(second, word_at(at + stretch_bytes + i));
      third = with_word(third, word_at(at + 2 * stretch_bytes + i));
    }
    crc = over_a_stretch(over_a_stretch(crc) ^ second) ^ third;
  }
  for (; size >= 8; at += 8, size -= 8) crc = with_word(crc, word_at(at));
  for (; size > 0; ++at, --size) crc = with_byte(crc, *at);
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
