/* Horovod's runtime for C and C++ programs: the one public header.
 *
 * A program calls hvd_init() in every process of the job, prepares each operation once (hvd_prepare), then starts it as
 * often as it likes (hvd_start) and waits (hvd_wait). Operations are matched between the ranks by name; the order in
 * which a rank starts them does not matter.
 *
 * Threads: every function may be called from any thread, except that hvd_shutdown() must not race with itself or with
 * the other functions on the same runtime; ops in flight then fail with HVD_SHUT_DOWN.
 * Errors: functions return HVD_OK (0) or a positive hvd_status; hvd_last_error() explains the last failure of the
 * calling thread.
 * Versions: structs begin with their size. A smaller one, of an older header, is completed with the defaults that its
 * fields document (zero means the default everywhere); a larger one, of a newer header, is taken if what is unknown in
 * it is zero. A changed function gets a new symbol version, so programs built against an older header go on working.
 */
#ifndef HOROVOD_H
#define HOROVOD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HVD_API __attribute__((visibility("default")))
#else
#define HVD_API
#endif

typedef struct hvd_runtime hvd_runtime; /* this process's part of a job */
typedef struct hvd_op hvd_op;           /* a prepared operation; owned by the runtime */
typedef uint64_t hvd_handle;            /* a started operation; 0 is never one */

typedef enum hvd_status {
  HVD_OK = 0,
  HVD_INVALID_ARGUMENT = 1, /* this call is wrong; found before anything was sent */
  HVD_MISMATCH = 2,         /* the ranks disagree about the operation; the runtime stays usable */
  HVD_NOT_INITIALIZED = 3,
  HVD_SHUT_DOWN = 4,
  HVD_PEER_LOST = 5,
  HVD_TIMEOUT = 6,
  HVD_UNSUPPORTED = 7,
  HVD_OUT_OF_MEMORY = 8,
  HVD_SYSTEM_ERROR = 9
} hvd_status;

typedef enum hvd_dtype {
  HVD_BOOL,
  HVD_UINT8,
  HVD_INT8,
  HVD_UINT16,
  HVD_INT16,
  HVD_INT32,
  HVD_INT64,
  HVD_FLOAT16,
  HVD_BFLOAT16,
  HVD_FLOAT32,
  HVD_FLOAT64
} hvd_dtype;

typedef enum hvd_verb {
  HVD_ALLREDUCE,
  HVD_ALLGATHER,
  HVD_BROADCAST,
  HVD_BARRIER,
  HVD_REDUCESCATTER, /* reduces, and gives every rank its share of the rows (hvd_rows_of) */
  HVD_ALLTOALL,      /* sends rows of the input to every rank */
  HVD_JOIN           /* this rank has no more to contribute: zeros take its place until all have joined. The output, if
                      * not null, is an int32_t: the rank that joined last */
} hvd_verb;

/* The numbers that Horovod's users know. HVD_ADASUM: of allreduce, floating types, a number of ranks that is a power of
 * two, the global process set. */
typedef enum hvd_reduce_op {
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2,
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5
} hvd_reduce_op;

/* Where a tensor lies. */
typedef enum hvd_device { HVD_HOST = 0, HVD_CUDA = 1 } hvd_device;

enum { HVD_MAX_DIMENSIONS = 32 };

/* The text of the calling thread's last failure; never null; valid until the thread's next call. */
HVD_API const char* hvd_last_error(void);
HVD_API const char* hvd_version(void);

/* ---- the job --------------------------------------------------------------------------------------------------- */

/* Joins the job that this process was launched into; alone where nobody launched it. Collective over the job. Blocks
 * until all ranks are there or HOROVOD_START_TIMEOUT has passed. After hvd_shutdown() it may be called again. A child
 * that a rank forked gets HVD_INVALID_ARGUMENT instead of joining in its parent's place. */
HVD_API hvd_status hvd_init(hvd_runtime** runtime);

/* The same with other processes than all that were launched together. */
typedef struct hvd_init_options {
  size_t struct_size;   /* sizeof(hvd_init_options) */
  const void* mpi_comm; /* address of an MPI_Comm of this process's MPI; its processes are the ranks. Null: not given */
  size_t mpi_comm_size; /* sizeof(MPI_Comm) */
  const int* ranks;     /* or: these ranks of MPI_COMM_WORLD, in this order; null: not given */
  size_t rank_count;
  /* Process sets that exist from the start, with the ids 1, 2, … in this order, the same on all ranks; a set that is
   * listed twice, or has all ranks, has one id. Set k has set_sizes[k] of the ranks in set_ranks, one set after the
   * other. */
  const int* set_ranks;
  const size_t* set_sizes;
  size_t set_count;
  /* Or sets by communicators: each rank gives those it belongs to (addresses of MPI_Comm). They get ids after the
   * listed ones, the distinct lists of ranks in ascending order; set_comm_ids, if not null, receives this rank's. */
  const void* const* set_comms;
  size_t set_comm_count;
  int* set_comm_ids;
} hvd_init_options;
/* Collective over these processes, of which each becomes a rank. The communicator is copied and may be freed. Disjoint
 * groups of one job may each have a runtime. With all options null this is hvd_init(). */
HVD_API hvd_status hvd_init_with(hvd_runtime** runtime, const hvd_init_options* options);
/* Ends the job's operations on all ranks, waits until all have agreed, and frees the runtime. Null is allowed. */
HVD_API void hvd_shutdown(hvd_runtime* runtime);
/* The same without freeing it, for programs whose other threads still use the runtime: what they wait for ends with
 * HVD_SHUT_DOWN, what they start is refused. When it returns no operation touches a tensor any more, and when they have
 * left, hvd_shutdown() may follow. */
HVD_API void hvd_stop(hvd_runtime* runtime);

typedef struct hvd_world {
  size_t struct_size; /* in: sizeof(hvd_world) */
  int rank, size;
  int local_rank, local_size; /* among the ranks of this node */
  int cross_rank, cross_size; /* among the nodes that have this local rank */
  int is_homogeneous;         /* every node runs the same number of ranks */
} hvd_world;
HVD_API hvd_status hvd_get_world(hvd_runtime* runtime, hvd_world* world);
/* Whether any plugin for MPI libraries was installed. */
HVD_API int hvd_mpi_built(void);
/* The thread level (MPI_THREAD_SINGLE is 0, MPI_THREAD_MULTIPLE 3) of the MPI that the runtime's ranks are connected
 * by; -1 if they have none in common, or no use for it. */
HVD_API int hvd_mpi_thread_level(hvd_runtime* runtime);
/* False once the runtime has been shut down by another rank or a peer was lost. */
HVD_API int hvd_is_running(hvd_runtime* runtime);

/* ---- process sets ------------------------------------------------------------------------------------------------ */

/* A set of ranks in which operations can run. Set 0 has all ranks. Collective over all ranks of the job, members or
 * not, in the same order everywhere; blocks until all ranks know the set. Ranks may come in any order, each once.
 * `id` is set in any case when a set of these ranks exists: then it is HVD_INVALID_ARGUMENT. */
HVD_API hvd_status hvd_add_process_set(hvd_runtime* runtime, const int* ranks, size_t count, int* id);
/* Operations that are still under way in the set end with HVD_SHUT_DOWN; the id may be given again. Collective over all
 * ranks. */
HVD_API hvd_status hvd_remove_process_set(hvd_runtime* runtime, int id);
/* The ids of all sets, ascending; the result is their number, of which at most `capacity` are written. -1: no
 * runtime. */
HVD_API int hvd_process_set_ids(hvd_runtime* runtime, int* ids, int capacity);
/* This rank's place in the set (-1: not a member) and the ranks of the set, ascending, of which at most `capacity` are
 * written. Any of the pointers may be null. */
HVD_API hvd_status hvd_process_set(hvd_runtime* runtime, int id, int* rank, int* size, int* ranks, int capacity);
/* The rows that the rank with this place gets of `rows`: reducescatter deals the first dimension out as evenly as it
 * can, the first ones get one more. */
HVD_API int64_t hvd_rows_of(int64_t rows, int place, int size);

/* ---- operations ------------------------------------------------------------------------------------------------ */

typedef struct hvd_op_description {
  size_t struct_size; /* sizeof(hvd_op_description) */
  const char* name;   /* UTF-8; may be in flight once at a time in its process set */
  hvd_verb verb;
  hvd_dtype dtype;
  hvd_reduce_op reduce_op; /* allreduce; reducescatter: sum or average */
  int dimensions;
  const int64_t* shape; /* of the input; for allgather and alltoall the first dimension may differ between ranks and
                               * calls */
  double prescale, postscale; /* allreduce, reducescatter; 1.0 for none */
  int root_rank;              /* broadcast; a rank of the world, also in a process set */
  int process_set;            /* 0: all ranks */
  int transient;              /* the name will not come again: do not cache what is agreed about it */
  int reserved;               /* was padding in the first release; ignored */
  hvd_device device;          /* where input and output are; 0: host memory. Part of what the ranks agree on */
  int device_ordinal;         /* the rank's own device of that kind, as the kind's library counts them */
  const char* group;          /* null, or a name that operations share which are to be fused with each other alone, if
                      * HOROVOD_DISABLE_GROUP_FUSION is set */
} hvd_op_description;

/* Finds or makes the prepared operation of this description. Local, thread-safe, takes a microsecond; keep the result.
 * A prepared operation lives until hvd_op_release(), or hvd_shutdown(); a transient one is started once, and lives
 * until that handle is released. */
HVD_API hvd_status hvd_prepare(hvd_runtime* runtime, const hvd_op_description* description, hvd_op** op);
/* For programs whose names, shapes or scales are ever new ones: gives back what one call of hvd_prepare() gave. What is
 * under way goes on. Not for transient operations. Null is allowed. */
HVD_API void hvd_op_release(hvd_runtime* runtime, hvd_op* op);

/* One use of a prepared operation. Memory is borrowed until the handle is done. */
typedef struct hvd_start_arguments {
  size_t struct_size; /* sizeof(hvd_start_arguments); arrays step by it, so it is the same in all elements */
  hvd_op* op;
  const void* input;
  void*
      output; /* may equal input. Allgather, alltoall: null, the runtime keeps the result (hvd_result_*); so it does for
                 * a reducescatter whose output is null */
  int64_t first_dimension; /* allgather, alltoall: rows of this call's input; else ignored */
  const int64_t* splits;   /* alltoall: rows for each rank of the set, by place; copied. Null: equal parts */
  size_t split_count;
  void* stream; /* device memory: the caller's stream (CUDA: a CUstream; of the default stream CU_STREAM_LEGACY or
                 * CU_STREAM_PER_THREAD). The input is ready when the stream gets to this call, and the output when it
                 * gets to what is queued on it after the handle is done: nobody waits for the device, and memory may be
                 * given back in the order of the stream. Null: the input is ready, and when the handle is done the
                 * output is there. Null for host memory */
  /* Called when this operation is over, before its handle is done; null: not wanted. On a thread of the runtime that
   * holds no lock: it may start operations, must not wait for one (hvd_wait and hvd_stop refuse) and should be short.
   * `message` explains a failure and is valid during the call. */
  void (*on_done)(void* context, hvd_status status, const char* message);
  void* context;
} hvd_start_arguments;

/* The arguments of a call that gives input and output alone; set more of them as needed. */
static inline hvd_start_arguments hvd_use_of(hvd_op* op, const void* input, void* output) {
  hvd_start_arguments arguments;
  memset(&arguments, 0, sizeof arguments);
  arguments.struct_size = sizeof arguments;
  arguments.op = op;
  arguments.input = input;
  arguments.output = output;
  return arguments;
}

/* Submits `count` operations together, whose tensors lie in one kind of memory: they become visible to the other ranks
 * at once, or none does. Returns at once. One handle for all: it is done when all are, and fails if one does. */
HVD_API hvd_status hvd_start(hvd_runtime* runtime, const hvd_start_arguments* arguments, size_t count,
                             hvd_handle* handle);

/* 1 done (or failed), 0 under way, -1 no such handle. Never blocks. */
HVD_API int hvd_poll(hvd_runtime* runtime, hvd_handle handle);
/* Waits until the handle is done; timeout_ms < 0: for ever. HVD_TIMEOUT if it is not done by then (it goes on). Any
 * other value is the outcome of the operations; hvd_last_error() has the text. The handle stays valid. */
HVD_API hvd_status hvd_wait(hvd_runtime* runtime, hvd_handle handle, int64_t timeout_ms);
/* Forgets a handle, and with it a result that the runtime kept. One that is not done is forgotten when it is. No other
 * thread may be in a call with this handle. */
HVD_API void hvd_release(hvd_runtime* runtime, hvd_handle handle);

/* A result that the runtime kept, of the index-th operation of a done handle: its dimensions. */
HVD_API hvd_status hvd_result_shape(hvd_runtime* runtime, hvd_handle handle, size_t index, int* dimensions,
                                    int64_t shape[HVD_MAX_DIMENSIONS]);
/* The rows that came from each rank of the set, by place; `count` is the size of the set. Allgather, alltoall. */
HVD_API hvd_status hvd_result_splits(hvd_runtime* runtime, hvd_handle handle, size_t index, int64_t* splits,
                                     size_t count);
/* Of a result in host memory. */
HVD_API hvd_status hvd_result_copy(hvd_runtime* runtime, hvd_handle handle, size_t index, void* destination,
                                   size_t bytes);
/* Hands the memory of the result over, without a copy; once for each result. It lies where the input did: `device`, if
 * not null, receives where that is. free_data(owner) gives it back, at any time and on any thread, also after
 * hvd_shutdown(); memory of a device is used again when the stream of the start has done what was queued on it by
 * then. */
HVD_API hvd_status hvd_result_take(hvd_runtime* runtime, hvd_handle handle, size_t index, void** data, void** owner,
                                   void (**free_data)(void* owner), hvd_device* device);

/* ---- memory shared by the ranks of a node ------------------------------------------------------------------------ */

/* Memory in which tensors of this rank are reduced in place, without packing. Collective over all ranks of the job:
 * all make these calls, hvd_shared_free() included, in the same order, and wait for each other as in any collective;
 * sizes are equal within a node. Freed by hvd_shared_free() on all ranks, or by hvd_shutdown(). */
HVD_API hvd_status hvd_shared_allocate(hvd_runtime* runtime, size_t bytes, void** memory);
HVD_API void hvd_shared_free(hvd_runtime* runtime, void* memory);
/* Keeps such memory, with what is in it, until hvd_shared_drop(), although it is freed or the runtime is shut down
 * before: it is then this process's own. Null if it is none of the runtime's. For tensors whose owners are many. */
typedef struct hvd_shared_hold_s hvd_shared_hold_t;
HVD_API hvd_shared_hold_t* hvd_shared_hold(hvd_runtime* runtime, void* memory);
HVD_API void hvd_shared_drop(hvd_shared_hold_t* hold); /* any thread, any time */

/* ---- the end of a job -------------------------------------------------------------------------------------------- */

/* Why all ranks leave their loops. */
typedef enum hvd_stop_cause {
  HVD_STOP_PROGRAM = 0,    /* hvd_request_stop() */
  HVD_STOP_WARNED = 1,     /* a signal that says that the end is near, as SIGUSR1 */
  HVD_STOP_TERMINATED = 2, /* a signal that else ends a process, as SIGTERM */
  HVD_STOP_TIME = 3        /* the scheduler ends the job soon */
} hvd_stop_cause;

/* 1 if the loop should be left now: at the same step on all ranks of the process set (0: all ranks). 0 if not, -1 with
 * hvd_last_error() for a set that does not exist. Call it after each step, from the thread that waits for the step's
 * operations (hvd_wait): what is agreed on is compared with the last of those in that set. Costs no message and never
 * blocks. The first call of a process begins to listen for the signals of HOROVOD_STOP_SIGNALS (those that the program
 * handles stay the program's), and on rank 0 to watch the end that the scheduler has set. */
HVD_API int hvd_should_stop(hvd_runtime* runtime, int process_set);
/* This rank wishes that all stop; the first wish of any rank counts. The reason is for people; null: none. Any thread,
 * but no signal handler. */
HVD_API hvd_status hvd_request_stop(hvd_runtime* runtime, const char* reason);
/* Why hvd_should_stop() gives 1, or will soon; null while nobody wishes it. The text is valid until hvd_shutdown().
 * `cause` may be null. */
HVD_API const char* hvd_stop_reason(hvd_runtime* runtime, hvd_stop_cause* cause);

/* ---- timeline ---------------------------------------------------------------------------------------------------- */

/* Writes what happens to every operation to a file from now on, in Chrome's trace format, valid at any instant; an open
 * one is closed first. All ranks call it; rank 0 writes, the others if HOROVOD_TIMELINE_ALL_RANKS is set (path.<rank>).
 * Needs a runtime that was started with HOROVOD_TIMELINE set (a path, or DYNAMIC), as Horovod's users know it. */
HVD_API hvd_status hvd_timeline_start(hvd_runtime* runtime, const char* path, int mark_cycles);
/* Closes the file; no error if there is none. */
HVD_API hvd_status hvd_timeline_stop(hvd_runtime* runtime);

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* The state of a program as one HDF5 file, which is whole or not there; docs/checkpoint-layout.md describes it. A state
 * is a tree: groups, values in them, and tensors. Rank 0 alone opens files.
 *
 * `runtime`: these functions are collective over its ranks, which all get the same answer. With null they are this
 * process's own affair. */
typedef enum hvd_entry_type {
  HVD_ENTRY_GROUP = 0,
  HVD_ENTRY_NONE = 1, /* a value that says that there is none */
  HVD_ENTRY_BOOL = 2,
  HVD_ENTRY_INTEGER = 3,
  HVD_ENTRY_NUMBER = 4,
  HVD_ENTRY_TEXT = 5,
  HVD_ENTRY_TENSOR = 6
} hvd_entry_type;

typedef struct hvd_checkpoint_entry {
  size_t struct_size; /* sizeof(hvd_checkpoint_entry); arrays step by it */
  const char* path;   /* "/model/layer1.weight"; a slash within a name is written %2F, a percent sign %25 */
  const char* kind;   /* what it stands for in the program ("list"); null: nothing special */
  hvd_entry_type type;
  int dimensions;    /* of a tensor */
  int64_t integer;   /* of HVD_ENTRY_INTEGER; of HVD_ENTRY_BOOL 0 or 1 */
  double number;     /* of HVD_ENTRY_NUMBER */
  const char* text;  /* of HVD_ENTRY_TEXT, UTF-8 */
  const char* dtype; /* of a tensor, as torch and NumPy call it: "float32", "bfloat16", "complex64", "uint8" … */
  const int64_t* shape;
  const void* data; /* of a tensor that is written: host memory; null when it was read */
  size_t bytes;     /* of a tensor that was read */
  const char* unit; /* of a tensor, "m/s"; null: none */
} hvd_checkpoint_entry;

typedef struct hvd_checkpoint_options {
  size_t struct_size; /* sizeof(hvd_checkpoint_options) */
  int64_t step;       /* of the training; negative: unknown */
  const char*
      compression;      /* "gzip", "gzip:0" to 9, and where the HDF5 library has the filters "lz4", "zstd", "zstd:1" to
                            * 22; null: none, which is fastest */
  int forgets_previous; /* do not keep the file that was there as PATH.previous */
  const char* lease; /* the file or folder that belongs to this job alone from now on; null: the file that is written */
  size_t keep; /* afterwards remove the oldest step-NUMBER.h5 in its folder, so that this many are left; 0: none */
} hvd_checkpoint_options;

/* Writes a checkpoint. The entries that others lie in are there, as groups; the order does not matter. Returns when the
 * file is durable; the memory of tensors is borrowed until then. Other ranks than 0 may pass no entries. A path that a
 * living process of another job writes to is refused. options may be null. */
HVD_API hvd_status hvd_checkpoint_save(hvd_runtime* runtime, const char* path, const hvd_checkpoint_entry* entries,
                                       size_t count, const hvd_checkpoint_options* options);

typedef struct hvd_checkpoint hvd_checkpoint; /* one that is open to be read */

/* Opens a checkpoint; of a folder, the newest whole one. Every byte of the file is verified. One that is damaged is
 * passed over for the one before it (PATH.previous, or the next newest of the folder), with a warning. */
HVD_API hvd_status hvd_checkpoint_open(hvd_runtime* runtime, const char* path, hvd_checkpoint** checkpoint);
HVD_API void hvd_checkpoint_close(hvd_checkpoint* checkpoint); /* local; null is allowed */

typedef struct hvd_checkpoint_info {
  size_t struct_size; /* in: sizeof(hvd_checkpoint_info) */
  const char* path;   /* of the file; valid until it is closed */
  size_t entries;
  uint64_t bytes;
  int64_t step;     /* negative: unknown */
  int64_t sequence; /* greater in each that was written to a folder */
  int64_t saved_at; /* seconds since 1970, by the clock of its writer */
} hvd_checkpoint_info;
HVD_API hvd_status hvd_checkpoint_get_info(hvd_checkpoint* checkpoint, hvd_checkpoint_info* info);
/* The index-th entry, in the order of paths. What it points to is valid until the checkpoint is closed. */
HVD_API hvd_status hvd_checkpoint_get_entry(hvd_checkpoint* checkpoint, size_t index, hvd_checkpoint_entry* entry);

typedef struct hvd_checkpoint_target {
  size_t struct_size; /* sizeof(hvd_checkpoint_target); arrays step by it */
  const char* path;   /* of a tensor */
  void* data;         /* host memory for it */
  size_t bytes;       /* of the tensor */
} hvd_checkpoint_target;
/* Reads tensors. With a runtime: collective over the ranks that opened it, with the same paths everywhere; rank 0
 * reads, the others get the bytes by broadcasts. */
HVD_API hvd_status hvd_checkpoint_read(hvd_checkpoint* checkpoint, const hvd_checkpoint_target* targets, size_t count);

/* Gives up the right to write to a path (see hvd_checkpoint_options.lease), which else lasts as long as the process.
 * Local. */
HVD_API void hvd_checkpoint_release(const char* path);
/* Opens the HDF5 library, if that was not done yet: HOROVOD_HDF5, else the first that the loader finds, else
 * `otherwise` (a file; null: none). The other functions do so by themselves. Local. */
HVD_API hvd_status hvd_checkpoint_library(const char* otherwise);

/* ---- looking inside ---------------------------------------------------------------------------------------------- */

/* Counters for tests and tools: "requests_sent", "log_bytes", "batches", "engine_sleeps", "plans",
 * "operations" (that are held by the program or agreed about), "frames_sent" and
 * "frames_received" (messages between nodes about what is ready, on the lowest rank of a node), …
 * -1 if there is none of that name. */
HVD_API int64_t hvd_counter(hvd_runtime* runtime, const char* name);
/* Calls visit once per knob of the configuration: name, kind, default, meaning. */
HVD_API void hvd_visit_knobs(void (*visit)(void* context, const char* name, const char* kind, const char* default_value,
                                           const char* meaning),
                             void* context);

#ifdef __cplusplus
}
#endif
#endif /* HOROVOD_H */
