#include "base/processor.hpp"

#include <gtest/gtest.h>

#if defined(__x86_64__)
TEST(Processor, is_what_the_compilers_own_runtime_finds) {
  __builtin_cpu_init();
  const hvd::Processor& found = hvd::processor();
  EXPECT_EQ(found.is_amd, __builtin_cpu_is("amd") != 0);
  EXPECT_EQ(found.has_sse4_2, __builtin_cpu_supports("sse4.2") != 0);
  EXPECT_EQ(found.has_avx2, __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                                __builtin_cpu_supports("bmi2") != 0);
  EXPECT_EQ(found.has_avx3, found.has_avx2 && __builtin_cpu_supports("avx512f") != 0 &&
                                __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
                                __builtin_cpu_supports("avx512dq") != 0);
}
#endif
