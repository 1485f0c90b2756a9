#pragma once
// Which instruction sets Google Highway compiles the kernels for. To be included before any header of Highway, of which
// only headers are used: nothing of it has to be found at run time.

// On x86: AVX3 (F, VL, DQ, BW; every AVX-512 CPU but the first), AVX2 with FMA and F16C, and the baseline. What is
// better than AVX3 (bits 0 to 7) brings nothing for sums in memory; SSE4 is little better than what the compiler makes
// of the baseline, and was all there is on the CPUs of 2008 to 2013 only. Elsewhere the baseline alone: NEON on arm64,
// what a Highway newer than 1.0.3 knows on ppc64le.
#if defined(__x86_64__)
#define HWY_DISABLED_TARGETS (0xFFLL | HWY_SSSE3 | HWY_SSE4)
#else
#define HWY_COMPILE_ONLY_STATIC
#endif
#include <hwy/detect_targets.h>
