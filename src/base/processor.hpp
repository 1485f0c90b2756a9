#pragma once
// The features of this machine's processor, on x86_64. They are read from the processor itself, because
// __builtin_cpu_supports needs a part of the compiler's runtime that the compiler of our wheels (Zig) lacks.

namespace hvd {

#if defined(__x86_64__)
struct Processor {
  bool is_amd = false;
  bool has_sse4_2 = false;
  bool has_sha = false;   // the instructions for SHA-256, with SSSE3 and SSE4.1
  bool has_avx2 = false;  // true only if all features are there that Highway uses with it, and the operating system
                          // saves the registers
  bool has_avx3 = false;  // AVX-512 F, VL, DQ and BW, under the same conditions
};
const Processor& processor() noexcept;
#endif

}  // namespace hvd
