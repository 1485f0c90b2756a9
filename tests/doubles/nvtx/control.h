#ifndef HVD_DOUBLE_OF_NVTX_H
#define HVD_DOUBLE_OF_NVTX_H
/* A double of what a profiler loads into programs (NVTX_INJECTION64_PATH): it keeps a line for each range that begins
 * or ends, "begin 1 Horovod: allreduce.a 12" (its number, domain, message and payload) and "end 1". */
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls `each` for each line since the last call, and returns how many there were. */
size_t hvd_nvtx_double_take(void (*each)(void* context, const char* line), void* context);

#ifdef __cplusplus
}
#endif
#endif
