#ifndef HVD_DOUBLE_OF_CUDA_H
#define HVD_DOUBLE_OF_CUDA_H
/* A double of NVIDIA's driver: a shared object with the driver's entry points (soname libcuda.so.1) over the engine of
 * tests/fixtures/device_double. Programs that are told to use it (HOROVOD_CUDA_DRIVER for our plugins) run as on GPUs
 * whose streams are late and out of step, and whose memory no host can touch. Every missing wait is found.
 *
 * What is asked of it before it starts, by variables: HVD_DOUBLE_DEVICES (2), HVD_DOUBLE_SEED (1), HVD_DOUBLE_DELAY (8;
 * work waits for up to so many turns of its stream), HVD_DOUBLE_DRIVER (12080; the version), HVD_DOUBLE_MEMORY (bytes
 * of each device), CUDA_VISIBLE_DEVICES (only if it is the UUID of a part, MIG-…: the part is then the only device),
 * HVD_DOUBLE_REFUSE (ENTRY_POINT=CODE@CALLS: so many calls succeed, all later ones return this code).
 * A process that ends with findings that nobody has taken ends with the status 66; so does a forked child that calls
 * the driver.
 *
 * Kernels are found by name: ours (tests/fixtures/cuda_kernels) and those of hvd_double_add_kernel(). Addresses and
 * streams are those of the driver. The functions below are for tests. Any thread may call them. */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what it has found */

/* Calls `each` for each finding since the last call, and returns how many there were. The caller answers for them. */
size_t hvd_double_take_findings(void (*each)(void* context, const char* text), void* context);
/* Allocations of programs that have not been given back, on all devices and of page-locked memory. */
size_t hvd_double_allocations(void);
/* How often an entry point was called, by its name ("cuLaunchKernel"). */
size_t hvd_double_calls(const char* entry_point);
size_t hvd_double_calls_of_thread(const char* entry_point); /* by the calling thread; null: of all together */
/* The NUMA node that the thread preferred at the last cuMemHostAlloc(); -1: none. */
int hvd_double_memory_node(void);
/* Begins anew: no streams, no memory, no failures, no contexts. Nobody may use the old ones any more. */
void hvd_double_reset(void);

/* ---- what a program does on a GPU */

typedef struct hvd_double_range {
  const void* begin;
  size_t bytes;
} hvd_double_range;
/* Queues work that calls run(context) when its turn comes. The work finds the bytes of an address by
 * hvd_double_inner(). It declares what it reads and writes. Returns the driver's code. */
int hvd_double_launch(void* stream, const char* label, const hvd_double_range* reads, size_t read_count,
                      const hvd_double_range* writes, size_t write_count, void (*run)(void* context), void* context);
/* The same for work that must wait for others: run() returns one of hvd_double_outcome, and is called again after
 * `again`, at the latest when hvd_double_has_news() was called. Work with the same `meeting` begins together. */
enum hvd_double_outcome {
  HVD_DOUBLE_DONE,
  HVD_DOUBLE_AGAIN,
  HVD_DOUBLE_ABORTED, /* what it writes becomes noise */
  HVD_DOUBLE_FAILED   /* the device fails */
};
int hvd_double_submit(void* stream, const char* label, const char* meeting, const hvd_double_range* reads,
                      size_t read_count, const hvd_double_range* writes, size_t write_count, int (*run)(void* context),
                      void (*forget)(void* context), void* context);
void hvd_double_has_news(void);
/* Where work finds the bytes of an address. */
void* hvd_double_inner(const void* address);

typedef struct hvd_double_copy {
  void* to;
  const void* from;
  size_t bytes;
} hvd_double_copy;
/* Reads memory of the device in the order of the stream, and returns when it is read. This teaches the host nothing:
 * streams are judged as if a kernel had read it. For kernels that are computed on the host meanwhile. */
int hvd_double_fetch(const hvd_double_copy* copies, size_t count, void* stream);

/* A kernel that cuModuleGetFunction() finds by this name in every image. uses() declares the ranges of a launch by
 * calls of add(list, begin, bytes, writes); run() is called with a copy of the parameters (one struct of so many
 * bytes). */
typedef void (*hvd_double_add_range)(void* list, const void* begin, size_t bytes, int writes);
void hvd_double_add_kernel(const char* name, size_t parameter_bytes,
                           void (*uses)(const void* parameters, unsigned blocks, hvd_double_add_range add, void* list),
                           void (*run)(const void* parameters, unsigned blocks));

/* ---- times: a timetable of what was queued, with given durations (tests/fixtures/device_double/graph.hpp) */

typedef struct hvd_double_piece {
  const char* label;
  const char* kind; /* "kernel", "to host", "to device", "inside", "host wait", "other" */
  int stream;       /* its number (hvd_double_number_of_stream); -1 on the host */
  size_t bytes;
} hvd_double_piece;
int hvd_double_number_of_stream(void* stream);
/* From now on, what is queued is recorded; again: what was recorded before is not part of the timetable any more. */
void hvd_double_record(void);
/* Asks for the duration of each piece of work that was recorded, and tells when it would have begun and ended. The host
 * needs no time. */
void hvd_double_timetable(double (*duration)(void* context, const hvd_double_piece* piece),
                          void (*each)(void* context, const hvd_double_piece* piece, double begin, double end),
                          void* context);

/* ---- delays */

/* No work on the stream is done until it is let go. */
void hvd_double_hold(void* stream);
void hvd_double_let_go(void* stream);
/* A new stream gets the handle of one that was destroyed, as NVIDIA's driver may do. */
void hvd_double_use_handles_again(int uses);
/* Queries and waits for events do not return. */
void hvd_double_hang(int is_hanging);

/* ---- faults */

/* The entry point returns this code at the call after `calls` more calls, once; always: from then on. */
void hvd_double_refuse(const char* entry_point, int code, int calls, int always);
/* The device fails when this kernel's turn comes after `launches` more launches (of any name with a null name). From
 * then on all calls return the code. */
void hvd_double_fail_kernel(const char* name, int code, int launches);
/* The device fails at once: all calls return the code. */
void hvd_double_fail(int code);
/* Images of this kind are refused with the code: 0 machine code, 1 PTX. */
void hvd_double_refuse_image(int is_ptx, int code);
/* At most so many bytes can be allocated on each device. */
void hvd_double_set_memory(size_t bytes);
/* The compute mode of a device, and whether another process has it. */
void hvd_double_set_mode(int device, int mode, int is_taken);
void hvd_double_set_version(int version);
/* The device is a part of the first GPU (MIG), with a UUID of its own. */
void hvd_double_make_part(int device, const char* uuid);
/* As at the end of a process: all calls return CUDA_ERROR_DEINITIALIZED. */
void hvd_double_end(void);

/* ---- threads of the host: see Engine::Separate in tests/fixtures/device_double */

void hvd_double_separate(int is_separate); /* the calling thread */
void hvd_double_is_told(void);

#ifdef __cplusplus
}
#endif
#endif
