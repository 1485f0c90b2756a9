#ifndef HVD_DOUBLE_OF_NCCL_H
#define HVD_DOUBLE_OF_NCCL_H
/* A double of NCCL: a shared object with its entry points (soname libnccl.so.2) over the double of the driver
 * (tests/doubles/cuda). A collective is one piece of work on its stream, which goes on when the streams of all its
 * ranks have got there. Ranks are threads or processes of one machine; bytes go through mailboxes in shared memory.
 * Reductions are in rank order.
 *
 * It compares what the ranks of a communicator call: verb, count, type, operation and root of each call, in its order.
 * A difference is a finding, where NCCL itself would hang or mix up bytes. Communicators are non-blocking: a start or a
 * launch is over after some looks (ncclCommGetAsyncError); a call before that is a finding, too.
 *
 * What is asked of it before it starts, by variables: HVD_NCCL_DOUBLE_VERSION (22809); HVD_NCCL_DOUBLE_LOOKS (3; so
 * many looks find a launch in progress); HVD_NCCL_DOUBLE_REFUSE (ENTRY_POINT=CODE@CALLS, as hvd_nccl_double_refuse());
 * HVD_NCCL_DOUBLE_HANG (init, launch, abort: as hvd_nccl_double_hang()); HVD_NCCL_DOUBLE_SLOW (a rank, by HOROVOD_RANK,
 * of which each chunk of 32 KB takes 20 ms).
 * A process that ends with findings that nobody has taken ends with the status 67. */
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls `each` for each finding since the last call, and returns how many there were. */
size_t hvd_nccl_double_take_findings(void (*each)(void* context, const char* text), void* context);
/* How often an entry point was called, by its name ("ncclAllReduce"). */
size_t hvd_nccl_double_calls(const char* entry_point);
void hvd_nccl_double_set_version(int version);
/* Communicators of this process that were neither destroyed nor aborted. */
size_t hvd_nccl_double_communicators(void);
/* Communicators that were started without NVLS. */
size_t hvd_nccl_double_without_nvls(void);
/* The entry point returns this code at the call after `calls` more calls, once. With "late" in place of a name, a
 * launch ends with this code in ncclCommGetAsyncError. */
void hvd_nccl_double_refuse(const char* entry_point, int code, int calls);
enum hvd_nccl_double_call { HVD_NCCL_DOUBLE_INIT, HVD_NCCL_DOUBLE_LAUNCH, HVD_NCCL_DOUBLE_ABORT };
/* Starts or launches stay in progress until they are aborted; aborts do not return. */
void hvd_nccl_double_hang(int call, int is_hanging);

#ifdef __cplusplus
}
#endif
#endif
