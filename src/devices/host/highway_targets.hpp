#pragma once
// The instruction sets for which Google Highway compiles the kernels. It must be included before any header of Highway.
// Only headers of Highway are used, so no library of it is needed at run time.

// On x86 there are three: AVX3 (F, VL, DQ, BW; every AVX-512 CPU except the first), AVX2 with FMA and F16C, and the
// baseline. Better ones than AVX3 (bits 0 to 7) do not make sums in memory faster. SSE4 is hardly better than the
// compiler's code for the baseline, and only the CPUs of 2008 to 2013 had nothing better. On other architectures there
// is only the baseline: NEON on arm64, and on ppc64le the instruction set that a Highway newer than 1.0.3 knows.
// Under a sanitizer there is only the baseline, too: the kernels have no threads, and in any build tests/devices finds
// accesses beyond the memory by guarded pages.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HWY_DISABLED_TARGETS (0xFFLL | HWY_SSSE3 | HWY_SSE4)
#else
#define HWY_COMPILE_ONLY_STATIC
#endif
#include <hwy/detect_targets.h>
