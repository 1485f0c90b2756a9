#include "base/processor.hpp"

#if defined(__x86_64__)
#include <cpuid.h>

namespace hvd {
namespace {

// bits of the register XCR0: the registers that the operating system saves
constexpr unsigned saves_avx = 0x06, saves_avx3 = 0xe6;

unsigned saved_registers() noexcept {
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

constexpr bool has_all(unsigned found, unsigned wanted) noexcept {
  return (found & wanted) == wanted;
}

Processor ask() noexcept {
  Processor me;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) != 0) me.is_amd = ebx == signature_AMD_ebx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return me;
  me.has_sse4_2 = has_all(ecx, bit_SSE4_2);
  const unsigned basic = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return me;
  me.has_sha = has_all(basic, bit_SSSE3 | bit_SSE4_1) && has_all(ebx, bit_SHA);
  if (!has_all(basic, bit_OSXSAVE | bit_AVX | bit_F16C | bit_FMA | bit_PCLMUL | bit_AES)) return me;
  const unsigned saved = saved_registers();
  me.has_avx2 = has_all(saved, saves_avx) && has_all(ebx, bit_AVX2 | bit_BMI | bit_BMI2);
  me.has_avx3 = me.has_avx2 && has_all(saved, saves_avx3) &&
                has_all(ebx, bit_AVX512F | bit_AVX512VL | bit_AVX512DQ | bit_AVX512BW);
  return me;
}

}  // namespace

const Processor& processor() noexcept {
  static const Processor me = ask();
  return me;
}

}  // namespace hvd
#endif
