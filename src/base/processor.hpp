#pragma once
// What this machine's processor can do, on x86_64. It is asked directly: __builtin_cpu_supports needs a part of the
// compiler's runtime that the compiler of our wheels (Zig) lacks.

namespace hvd {

#if defined(__x86_64__)
struct Processor {
  bool is_amd = false;
  bool has_sse4_2 = false;
  bool has_avx2 = false;  // with all that Highway uses together with it; the operating system saves the registers, too
  bool has_avx3 = false;  // AVX-512 F, VL, DQ and BW, likewise
};
const Processor& processor() noexcept;
#endif

}  // namespace hvd
