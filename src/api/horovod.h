/* Horovod's runtime for C and C++ programs: the one public header.
 *
 * A program calls hvd_init() in every process of the job, prepares each operation once (hvd_prepare), then starts it as
 * often as it likes (hvd_start) and waits (hvd_wait). Operations are matched between the ranks by name; the order in
 * which a rank starts them does not matter.
 *
 * Threads: every function may be called from any thread. Only hvd_shutdown() must not run at the same time as another
 * call with the same runtime. Operations in flight then fail with HVD_SHUT_DOWN. Errors: functions return HVD_OK (0) or
 * a positive hvd_status; hvd_last_error() explains the last failure of the calling thread. Versions: structs begin with
 * their size. If a program was built with an older header, its structs are smaller, and the missing fields get their
 * defaults (zero means the default everywhere). If it was built with a newer header, its structs are larger, and they
 * are accepted if the unknown fields are zero. A changed function gets a new symbol version, so programs built with an
 * older header go on working. */
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
typedef uint64_t hvd_handle;            /* a started operation; never 0 */

typedef enum hvd_status {
  HVD_OK = 0,
  HVD_INVALID_ARGUMENT = 1, /* the arguments are wrong; nothing was sent */
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
  HVD_BOOL = 0,
  HVD_UINT8 = 1,
  HVD_INT8 = 2,
  HVD_UINT16 = 3,
  HVD_INT16 = 4,
  HVD_INT32 = 5,
  HVD_INT64 = 6,
  HVD_FLOAT16 = 7,
  HVD_BFLOAT16 = 8,
  HVD_FLOAT32 = 9,
  HVD_FLOAT64 = 10,
  HVD_UINT32 = 11,
  HVD_UINT64 = 12
} hvd_dtype;

typedef enum hvd_verb {
  HVD_ALLREDUCE = 0,
  HVD_ALLGATHER = 1,
  HVD_BROADCAST = 2,
  HVD_BARRIER = 3,
  HVD_REDUCESCATTER = 4, /* reduces, then gives every rank its share of the rows (hvd_rows_of) */
  HVD_ALLTOALL = 5,      /* sends rows of the input to every rank */
  HVD_JOIN = 6           /* this rank has no more tensors: zeros replace them until all have joined. The output, if not
                          * null, is an int32_t: the rank that joined last */
} hvd_verb;

/* The numbers that Horovod's users know. HVD_ADASUM works only for allreduce, floating types, the global process set
 * and a number of ranks that is a power of two. */
typedef enum hvd_reduce_op {
  HVD_AVERAGE = 0,
  HVD_SUM = 1,
  HVD_ADASUM = 2,
  HVD_MIN = 3,
  HVD_MAX = 4,
  HVD_PRODUCT = 5
} hvd_reduce_op;

/* The kind of memory that holds a tensor. */
typedef enum hvd_device { HVD_HOST = 0, HVD_CUDA = 1, HVD_ROCM = 2 } hvd_device;

enum { HVD_MAX_DIMENSIONS = 32, HVD_MAX_HANDLES = 4194304 /* handles of a runtime that are not released */ };

/* Returns the text of the calling thread's last failure. Never null. Valid until the thread's next call. */
HVD_API const char* hvd_last_error(void);
/* Returns the id of that failure in docs/errors.md, such as "HVD2101". Empty before the first failure. Never null.
 * Valid as long as the text. */
HVD_API const char* hvd_last_error_id(void);
HVD_API const char* hvd_version(void);

/* ---- the job --------------------------------------------------------------------------------------------------- */

/* Joins the job that this process was launched into. A process that no launcher started is a job of one rank.
 * Collective over the job. Blocks until all ranks are there or HOROVOD_START_TIMEOUT has passed. After hvd_shutdown()
 * it may be called again. A child that a rank forked gets HVD_INVALID_ARGUMENT: it cannot take its parent's place. */
HVD_API hvd_status hvd_init(hvd_runtime** runtime);

/* Options of hvd_init_with(): which processes become ranks, and which process sets exist from the start. */
typedef struct hvd_init_options {
  size_t struct_size;   /* sizeof(hvd_init_options) */
  const void* mpi_comm; /* address of an MPI_Comm of this process's MPI; its processes are the ranks. Null: not given */
  size_t mpi_comm_size; /* sizeof(MPI_Comm) */
  const int* ranks;     /* ranks of MPI_COMM_WORLD that become the ranks, in this order, instead of a communicator;
                           null: not given */
  size_t rank_count;
  /* Process sets that exist from the start; all ranks list the same sets. They get the ids 1, 2, … in this order. A set
   * that is listed twice has one id, and a set of all ranks has id 0. set_ranks has the ranks of all sets, one set
   * after the other; set k has set_sizes[k] ranks. */
  const int* set_ranks;
  const size_t* set_sizes;
  size_t set_count;
  /* Process sets can also be given as communicators: each rank gives those that it belongs to (addresses of MPI_Comm).
   * These sets get the ids after those of the listed sets, in ascending order of their lists of ranks. set_comm_ids, if
   * not null, receives the ids of this rank's communicators. */
  const void* const* set_comms;
  size_t set_comm_count;
  int* set_comm_ids;
  /* For jobs whose ranks come and go (horovodrun --min-np), which this process joins again after a failure or after
   * news of other hosts. elastic_cause: why it joins. elastic_step: how far its training has come, as 1 + the number of
   * its commits; 0: it has no state of the training, and takes over that of others. elastic_keeps: 1 if it can write a
   * checkpoint of its last commit alone, should the job end; see hvd_take_hosts_updated(). */
  int elastic_cause; /* an hvd_elastic_cause */
  int64_t elastic_step;
  int elastic_keeps;
} hvd_init_options;
typedef enum hvd_elastic_cause {
  HVD_ELASTIC_FIRST = 0, /* it has had no rank yet */
  HVD_ELASTIC_FAILED = 1,
  HVD_ELASTIC_HOSTS_UPDATED = 2
} hvd_elastic_cause;
/* Like hvd_init(), but the ranks are the processes that the options name; collective over these processes. The
 * communicator is copied and may be freed. Disjoint groups of one job may each have a runtime. With all options null
 * this function does the same as hvd_init(). */
HVD_API hvd_status hvd_init_with(hvd_runtime** runtime, const hvd_init_options* options);
/* Ends the job's operations on all ranks, waits until all have agreed, and frees the runtime. Null is allowed. */
HVD_API void hvd_shutdown(hvd_runtime* runtime);
/* Ends the operations like hvd_shutdown(), but does not free the runtime. For programs whose other threads still use
 * the runtime: operations that they wait for end with HVD_SHUT_DOWN, and new ones are refused. After the return no
 * operation touches a tensor in host memory. A device may still do so after a loss, if the operation was started on a
 * stream; hvd_wait() lets that stream wait for it. hvd_shutdown() may follow when these threads no longer use the
 * runtime. */
HVD_API void hvd_stop(hvd_runtime* runtime);

typedef struct hvd_world {
  size_t struct_size; /* the caller sets it to sizeof(hvd_world) */
  int rank, size;
  int local_rank, local_size; /* this rank's number among the ranks of this node */
  int cross_rank, cross_size; /* this rank's number among the nodes that have a rank with this local rank */
  int is_homogeneous;         /* every node runs the same number of ranks */
} hvd_world;
HVD_API hvd_status hvd_get_world(hvd_runtime* runtime, hvd_world* world);
/* Gives the current runtime, which is not freed until hvd_leave(). For code that has no pointer to the runtime, or
 * cannot know whether it was freed, such as kernels that threads of a framework call. The first runtime that hvd_init()
 * makes is the current one until its hvd_shutdown(), which waits for these callers. `generation`, if not null, receives
 * a number that grows with every current runtime: operations of an earlier one are freed and must not be used, nor
 * released. Fails with HVD_NOT_INITIALIZED if there is no current runtime. Takes nanoseconds. A thread that has entered
 * must not call hvd_shutdown(). */
HVD_API hvd_status hvd_enter(hvd_runtime** runtime, uint64_t* generation);
HVD_API void hvd_leave(hvd_runtime* runtime); /* after each hvd_enter() that returned HVD_OK; on any thread */
/* True if a plugin for an MPI library was installed. */
HVD_API int hvd_mpi_built(void);
typedef struct hvd_device_facts {
  size_t struct_size;   /* the caller sets it to sizeof(hvd_device_facts) */
  const char* name;     /* "host", "cuda" or "rocm" */
  int dlpack_type;      /* the DLDeviceType of DLPack: 1, 2 or 10 */
  void* default_stream; /* the handle of the default stream. Frameworks may write null for it, but in this header a null
                         * stream means no stream. Null: there is no such handle */
} hvd_device_facts;
/* What bindings to frameworks need to know of a kind of memory. Fails with HVD_INVALID_ARGUMENT for other numbers. */
HVD_API hvd_status hvd_get_device_facts(hvd_device device, hvd_device_facts* facts);
/* True if the plugin for memory of this kind was installed. Nothing is loaded. */
HVD_API int hvd_device_built(hvd_device device);
/* True if the plugin for NCCL was installed, by which tensors go from GPU to GPU. Nothing is loaded. */
HVD_API int hvd_nccl_built(void);
/* Returns the thread level of the MPI that connects the ranks (MPI_THREAD_SINGLE is 0, MPI_THREAD_MULTIPLE is 3).
 * Returns -1 if the ranks have no common MPI or do not use MPI. */
HVD_API int hvd_mpi_thread_level(hvd_runtime* runtime);
/* Returns the number of the GPU that this rank is meant to use, as programs count the GPUs that this process sees.
 * Returns -1 if it sees none. */
HVD_API int hvd_local_device(hvd_runtime* runtime);
/* Returns 1 if operations of the process set (0: all ranks) take tensors in this memory, 0 if a rank cannot work on it:
 * then all ranks give tensors in host memory. The answer is the same on all ranks of the set. Returns -1 with
 * hvd_last_error() if there is no such set. */
HVD_API int hvd_has_device(hvd_runtime* runtime, hvd_device device, int process_set);
/* False once the runtime has been shut down by another rank or a peer was lost. */
HVD_API int hvd_is_running(hvd_runtime* runtime);

/* ---- process sets ------------------------------------------------------------------------------------------------ */

/* Adds a set of ranks in which operations can run. Set 0 has all ranks. Collective: all ranks of the job call it, also
 * those that are not members, and all add and remove sets in the same order. Blocks until all ranks know the set.
 * `ranks` may have any order and has each rank once. If a set of these ranks exists already, the result is
 * HVD_INVALID_ARGUMENT and `id` receives the id of that set. */
HVD_API hvd_status hvd_add_process_set(hvd_runtime* runtime, const int* ranks, size_t count, int* id);
/* Removes a set. Collective over all ranks of the job. Operations of the set that are still under way end with
 * HVD_SHUT_DOWN. A later set may get the same id. */
HVD_API hvd_status hvd_remove_process_set(hvd_runtime* runtime, int id);
/* Writes the ids of all sets in ascending order, at most `capacity` of them. Returns the number of all sets, or -1 if
 * there is no runtime. */
HVD_API int hvd_process_set_ids(hvd_runtime* runtime, int* ids, int capacity);
/* Writes this rank's place in the set (-1: not a member), the number of the set's ranks, and at most `capacity` of
 * these ranks in ascending order. Any of the pointers may be null. */
HVD_API hvd_status hvd_process_set(hvd_runtime* runtime, int id, int* rank, int* size, int* ranks, int capacity);
/* Returns how many of `rows` rows reducescatter gives to the rank with this place in the set. The first dimension is
 * divided as evenly as possible; if a remainder is left, the first ranks get one row more. */
HVD_API int64_t hvd_rows_of(int64_t rows, int place, int size);

/* ---- operations ------------------------------------------------------------------------------------------------ */

typedef struct hvd_op_description {
  size_t struct_size; /* sizeof(hvd_op_description) */
  const char* name;   /* UTF-8. At most one operation of a name may be in flight in a process set */
  hvd_verb verb;
  hvd_dtype dtype;
  hvd_reduce_op reduce_op; /* allreduce; reducescatter: sum or average */
  int dimensions;
  const int64_t* shape;       /* shape of the input; for allgather and alltoall the first dimension may differ between
                         * ranks and between calls */
  double prescale, postscale; /* allreduce, reducescatter; 1.0 for none */
  int root_rank;              /* broadcast; a rank of the world, also in a process set */
  int process_set;            /* the process set in which the operation runs; 0: all ranks */
  int transient;              /* not 0: the name will not be used again, and nothing about it is cached */
  int reserved;               /* ignored; it was padding in the first release */
  hvd_device device;          /* the memory of input and output, 0: host. It must be equal on all ranks */
  int device_ordinal;         /* number of this rank's device, as the device's library counts. The first tensor
                               * decides: all tensors of a rank that are in device memory are on one device. For
                               * HVD_JOIN: the device with which the rank takes part, if it has used none yet */
  const char* group;     /* null, or the name of a group. If HOROVOD_DISABLE_GROUP_FUSION is set, an operation is fused
                      * only with operations of its group */
  int has_output_device; /* not 0: the next two fields tell where the output is, and hvd_prepare() fails if it is not
                          * where the input is; 0: this is not checked */
  hvd_device output_device;
  int output_device_ordinal;
} hvd_op_description;

/* Finds or makes the prepared operation of this description. Local and thread-safe. It takes a microsecond, so the
 * program should keep the result. A prepared operation lives until hvd_op_release() or hvd_shutdown(). A transient
 * operation can be started once and lives until the handle of that start is released. */
HVD_API hvd_status hvd_prepare(hvd_runtime* runtime, const hvd_op_description* description, hvd_op** op);
/* Releases the result of one call of hvd_prepare(). For programs that always use new names, shapes or scales. An
 * operation that is under way goes on. Not for transient operations. Null is allowed. */
HVD_API void hvd_op_release(hvd_runtime* runtime, hvd_op* op);

/* The thread on which a callback runs. */
typedef enum hvd_callback_thread {
  HVD_ENGINE_THREAD = 0,  /* the thread that moves all operations of this rank: the shortest way, but all ranks wait
                           * while the callback runs */
  HVD_CALLBACK_THREAD = 1 /* a thread for callbacks alone, which is made when the first start asks for it. For
                           * callbacks that run code of others. It calls them in the order in which the operations
                           * have ended */
} hvd_callback_thread;

/* How an operation has ended, for on_end of hvd_start_arguments. */
typedef struct hvd_completion {
  size_t struct_size; /* size of the struct in the library that calls */
  hvd_status status;
  const char* message; /* explains a failure; valid during the call */
  hvd_runtime* runtime;
  hvd_handle handle; /* the handle of the start. During the call, hvd_result_* accept it for this index, although it is
                      * not done and even if it was released. During the call for its last operation they accept it for
                      * all indices, unless it was released */
  size_t index;      /* the operation's number among those of its start */
} hvd_completion;

/* One use of a prepared operation. Memory is borrowed until the handle is done; in device memory with a stream, until
 * hvd_wait() or hvd_wait_on() has made a stream wait for the operation, and is then given back in the order of that
 * stream. */
typedef struct hvd_start_arguments {
  size_t struct_size; /* sizeof(hvd_start_arguments); equal in all elements of an array, which are this far apart */
  hvd_op* op;
  const void* input;
  void* output; /* may equal input, but must not overlap it otherwise. It is null for allgather and alltoall, and may be
                 * null for reducescatter: the runtime then keeps the result (hvd_result_*) */
  int64_t first_dimension; /* number of rows of this call's input, for allgather and alltoall; ignored for other
                              verbs */
  const int64_t* splits;   /* number of rows for each rank of the set, by place, for alltoall; copied. Null: equal
                              parts */
  size_t split_count;
  void* stream; /* for tensors in device memory; null for host memory. The caller's stream (CUDA: a CUstream; for the
                 * default stream CU_STREAM_LEGACY or CU_STREAM_PER_THREAD). The input is ready when the stream reaches
                 * the point of this call. The handle may be done before the device is: hvd_wait() then makes the
                 * stream wait for the output, and no thread waits for the device. Until that call nothing is queued on
                 * the stream, so that the program's own work overlaps with the operation. The stream must exist until
                 * hvd_wait() or hvd_release(). With a null stream the input must be ready now, and the output is ready
                 * when the handle is done */
  /* Called when hvd_wait() for this operation would not block any more, before its handle is done. Null: no call. It
   * runs on a thread of the runtime that holds no lock. It may start operations, must not wait for one, and should be
   * short. `message` explains a failure and is valid during the call. Functions that wait are refused there, with
   * HVD_INVALID_ARGUMENT or with an error in the log, and do nothing: hvd_init, hvd_init_with, hvd_shutdown, hvd_stop,
   * hvd_add_process_set, hvd_remove_process_set, hvd_wait and hvd_wait_on (unless the handle is done, or this is its
   * last operation), hvd_shared_allocate, hvd_shared_free, hvd_should_stop, hvd_timeline_start, hvd_timeline_stop,
   * hvd_checkpoint_save, hvd_checkpoint_open, hvd_checkpoint_open_before, hvd_checkpoint_read, hvd_checkpoint_claim,
   * hvd_meeting_open, hvd_meeting_enter, hvd_meeting_rank_ended, hvd_meeting_put, hvd_meeting_wait, hvd_meeting_get,
   * hvd_meeting_close.
   * All other functions may be called. */
  void (*on_done)(void* context, hvd_status status, const char* message);
  void* context; /* for all functions of this struct */
  /* The same with more facts, instead of on_done: the results that the runtime kept can be taken during the call. */
  void (*on_end)(void* context, const hvd_completion* completion);
  int callback_thread; /* an hvd_callback_thread: where on_done or on_end runs. hvd_stop() and hvd_shutdown() return
                        * when all callbacks have returned */
  /* Gives the memory of a result that the runtime would keep, in host memory: for allgather and alltoall, and for
   * reducescatter without output. Called once, when the shape is known; it may be called although the operation fails
   * afterwards. The program owns the memory, of which `bytes` are written, and hvd_result_shape() and
   * hvd_result_splits() describe it. If it returns null for more than 0 bytes, the rank fails with HVD_OUT_OF_MEMORY.
   * The rules of HVD_ENGINE_THREAD hold for it. */
  void* (*allocate)(void* context, int dimensions, const int64_t* shape, size_t bytes);
} hvd_start_arguments;

/* Returns the arguments for an operation that needs only input and output. Other fields are zero and may be set
 * afterwards. */
static inline hvd_start_arguments hvd_use_of(hvd_op* op, const void* input, void* output) {
  hvd_start_arguments arguments;
  memset(&arguments, 0, sizeof arguments);
  arguments.struct_size = sizeof arguments;
  arguments.op = op;
  arguments.input = input;
  arguments.output = output;
  return arguments;
}

/* Submits `count` operations together and returns immediately. Either all of them become visible to the other ranks, or
 * none. Their tensors must be in one kind of memory. They have one handle: it is done when all operations are done, and
 * fails if one of them fails. Every handle must be released; while HVD_MAX_HANDLES are not, the result is
 * HVD_OUT_OF_MEMORY. `*handle` is written before a callback of these operations is called. */
HVD_API hvd_status hvd_start(hvd_runtime* runtime, const hvd_start_arguments* arguments, size_t count,
                             hvd_handle* handle);

/* Returns 1 if the handle is done or failed, so that hvd_wait() would not block; 0 if it is under way, -1 if there is
 * no such handle. Never blocks, and makes no stream wait. */
HVD_API int hvd_poll(hvd_runtime* runtime, hvd_handle handle);
/* Waits until the handle is done; if timeout_ms is negative, without a limit. Returns HVD_TIMEOUT if the time has
 * passed (the operations go on). Any other value is the outcome of the operations; hvd_last_error() has the text, with
 * HVD2104 if they have succeeded and a stream cannot wait for them now. The handle stays valid. For tensors in device
 * memory the stream of each start waits from here on for its operation: work that is queued on it after this call sees
 * the output. */
HVD_API hvd_status hvd_wait(hvd_runtime* runtime, hvd_handle handle, int64_t timeout_ms);
/* The same, but `stream` waits for all operations of the handle, instead of the streams of the starts. For a program
 * that goes on with the result on another stream. A result that the runtime kept is given back in the order of the
 * start's stream and needs hvd_wait() as well. */
HVD_API hvd_status hvd_wait_on(hvd_runtime* runtime, hvd_handle handle, void* stream, int64_t timeout_ms);
/* Releases a handle, together with its results that the runtime kept. If the handle is not done, it is released when it
 * is done. No other thread may be in a call with this handle. */
HVD_API void hvd_release(hvd_runtime* runtime, hvd_handle handle);

/* Gives the dimensions of the result that the runtime kept for a done handle's index-th operation; taken or not. */
HVD_API hvd_status hvd_result_shape(hvd_runtime* runtime, hvd_handle handle, size_t index, int* dimensions,
                                    int64_t shape[HVD_MAX_DIMENSIONS]);
/* Gives the number of rows that came from each rank of the set, by place. `count` is the size of the set. Only for
 * allgather and alltoall. The result may have been taken, as for hvd_result_shape() and hvd_result_device(). */
HVD_API hvd_status hvd_result_splits(hvd_runtime* runtime, hvd_handle handle, size_t index, int64_t* splits,
                                     size_t count);
/* Copies a result that is in host memory. */
HVD_API hvd_status hvd_result_copy(hvd_runtime* runtime, hvd_handle handle, size_t index, void* destination,
                                   size_t bytes);
/* Gives the memory of the result to the caller without a copy; possible once for each result. The memory is of the same
 * kind as the input's; `device`, if not null, receives the kind. free_data(owner) frees the memory. It may be called at
 * any time and on any thread, also after hvd_shutdown(). Memory of a device is reused only after the work that the
 * stream of hvd_start() had in its queue when free_data() was called; that stream must exist until then. */
HVD_API hvd_status hvd_result_take(hvd_runtime* runtime, hvd_handle handle, size_t index, void** data, void** owner,
                                   void (**free_data)(void* owner), hvd_device* device);
/* Gives the device in whose memory the result is: its kind, and its number as the device's library counts. */
HVD_API hvd_status hvd_result_device(hvd_runtime* runtime, hvd_handle handle, size_t index, hvd_device* device,
                                     int* ordinal);

/* ---- memory shared by the ranks of a node ------------------------------------------------------------------------ */

/* Allocates memory in which tensors of this rank are reduced in place, without packing. Collective over all ranks of
 * the job: all ranks call hvd_shared_allocate() and hvd_shared_free() in the same order and wait for each other. Sizes
 * are equal within a node. The memory lives until hvd_shared_free() on all ranks, or until hvd_shutdown(). */
HVD_API hvd_status hvd_shared_allocate(hvd_runtime* runtime, size_t bytes, void** memory);
HVD_API void hvd_shared_free(hvd_runtime* runtime, void* memory);
/* Keeps memory of hvd_shared_allocate() and its content until hvd_shared_drop(), even if hvd_shared_free() or
 * hvd_shutdown() come before. After that the memory is private to this process. Returns null if the memory is not from
 * hvd_shared_allocate(). Useful if a tensor has several owners. */
typedef struct hvd_shared_hold_s hvd_shared_hold_t;
HVD_API hvd_shared_hold_t* hvd_shared_hold(hvd_runtime* runtime, void* memory);
HVD_API void hvd_shared_drop(hvd_shared_hold_t* hold); /* any thread, any time */

/* ---- the end of a job -------------------------------------------------------------------------------------------- */

/* Why all ranks leave their loops. */
typedef enum hvd_stop_cause {
  HVD_STOP_PROGRAM = 0,    /* a program called hvd_request_stop() */
  HVD_STOP_WARNED = 1,     /* a signal that announces the end of the job, such as SIGUSR1 */
  HVD_STOP_TERMINATED = 2, /* a signal that would otherwise end the process, such as SIGTERM */
  HVD_STOP_TIME = 3        /* the scheduler will end the job soon */
} hvd_stop_cause;

/* Returns 1 if the program should leave its loop now. All ranks of the process set (0: all ranks) get 1 at the same
 * step. Returns 0 if the loop should go on. Returns -1 with hvd_last_error() if the set does not exist. Call this
 * function after each step, on the thread that waits for the step's operations (hvd_wait), because the place of the
 * last of these operations decides. It sends no message and never blocks. With its first call the process begins to
 * listen for the signals of HOROVOD_STOP_SIGNALS, except those that the program handles itself. Rank 0 also begins
 * to watch for the end that the scheduler has set. */
HVD_API int hvd_should_stop(hvd_runtime* runtime, int process_set);
/* For a child process of a rank that has installed signal handlers of its own, or that was executed anew (a data
 * loader's worker). Launchers and schedulers often send a signal of HOROVOD_STOP_SIGNALS to all processes of a rank.
 * From now on, this process ignores such a signal unless its parent sends it; a signal of the parent does what it did
 * before this call. Other children that a rank has forked ignore these signals without this call. `parent` is the
 * number of the parent, or of the process that acts as the parent. Does nothing in a rank, or if the parent is not a
 * rank. Needs no runtime. */
HVD_API hvd_status hvd_shelter_child(int parent);
/* Asks all ranks to stop. The first such request of any rank counts. The reason is shown to people; it may be null.
 * May be called on any thread, but not in a signal handler. */
HVD_API hvd_status hvd_request_stop(hvd_runtime* runtime, const char* reason);
/* Returns the reason why hvd_should_stop() returns 1, or will soon do so. Returns null as long as nobody has asked
 * to stop. The text is valid until hvd_shutdown(). `cause` may be null. */
HVD_API const char* hvd_stop_reason(hvd_runtime* runtime, hvd_stop_cause* cause);

/* ---- jobs whose ranks come and go -------------------------------------------------------------------------------- */

/* The last start of this process in a job that horovodrun --min-np has started. */
typedef struct hvd_elastic_facts {
  size_t struct_size; /* the caller sets it to sizeof(hvd_elastic_facts) */
  int is_elastic;     /* 0: the ranks of this job stay, or this process has not joined yet; the other fields are 0 */
  int newcomers;      /* how many of the ranks have no state of the training */
  uint32_t epoch;     /* number of the generation of ranks, from 1 on */
} hvd_elastic_facts;
HVD_API hvd_status hvd_get_elastic_facts(hvd_elastic_facts* facts);
/* Returns what horovodrun has told this process about hosts since it joined, or since the last call: 0: nothing, 1:
 * some were removed, 2: some were added, 3: both. `time`, which may be null, receives when, in seconds since 1970. Only
 * rank 0 is told. Never blocks. After hvd_init_with() has failed, 4 means: the job ends because it has too few ranks,
 * and this process, whose elastic_keeps was 1, is to write a checkpoint and to end with exit code 75. */
HVD_API int hvd_take_hosts_updated(double* time);

/* ---- timeline ---------------------------------------------------------------------------------------------------- */

/* Starts to record every operation in a file in Chrome's trace format. The file is valid at any instant. A file that is
 * already open is closed first. All ranks call it. Rank 0 writes; the other ranks write, to path.<rank>, only if
 * HOROVOD_TIMELINE_ALL_RANKS is set. As in Horovod, HOROVOD_TIMELINE (a path, or DYNAMIC) must have been set when the
 * runtime started. */
HVD_API hvd_status hvd_timeline_start(hvd_runtime* runtime, const char* path, int mark_cycles);
/* Closes the timeline's file. Without an open file this is no error. */
HVD_API hvd_status hvd_timeline_stop(hvd_runtime* runtime);

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* A checkpoint is the state of a program in one HDF5 file. The file is complete, or it does not exist;
 * docs/checkpoint-layout.md describes it. A state is a tree of groups, with values and tensors in them. Only rank 0
 * opens files.
 *
 * With a `runtime` these functions are collective over its ranks, and all ranks get the same answer. With null this
 * process works alone. */
typedef enum hvd_entry_type {
  HVD_ENTRY_GROUP = 0,
  HVD_ENTRY_NONE = 1, /* no value, like None in Python */
  HVD_ENTRY_BOOL = 2,
  HVD_ENTRY_INTEGER = 3,
  HVD_ENTRY_NUMBER = 4,
  HVD_ENTRY_TEXT = 5,
  HVD_ENTRY_TENSOR = 6
} hvd_entry_type;

typedef struct hvd_checkpoint_entry {
  size_t struct_size; /* sizeof(hvd_checkpoint_entry); the elements of an array are this far apart */
  const char* path;   /* path of the entry, "/model/layer1.weight"; a slash within a name is written %2F, a percent
                         sign %25 */
  const char* kind;   /* the kind of object in the program ("list"); null: nothing special. "int" with HVD_ENTRY_TEXT: a
                         whole number that int64_t cannot hold, as decimal text. So are integers of 2^63 and more of
                         files that other programs have written */
  hvd_entry_type type;
  int dimensions;    /* number of dimensions of a tensor */
  int64_t integer;   /* the value of HVD_ENTRY_INTEGER; that of HVD_ENTRY_BOOL as 0 or 1 */
  double number;     /* the value of HVD_ENTRY_NUMBER */
  const char* text;  /* the value of HVD_ENTRY_TEXT, in UTF-8 */
  const char* dtype; /* element type of a tensor, as torch and NumPy call it: "float32", "bfloat16", "complex64",
                        "uint8" … */
  const int64_t* shape;
  const void* data; /* host memory of a tensor that is to be written; null in an entry that was read */
  size_t bytes;     /* size of the data of a tensor, in an entry that was read */
  const char* unit; /* the unit of a tensor, such as "m/s"; null: none */
} hvd_checkpoint_entry;

typedef struct hvd_checkpoint_options {
  size_t struct_size; /* sizeof(hvd_checkpoint_options) */
  int64_t step;       /* the step of the training; negative: unknown */
  const char*
      compression;      /* "gzip", "gzip:0" to 9, and where the HDF5 library has the filters "lz4", "zstd", "zstd:1" to
                            * 22; null: none, which is fastest */
  int forgets_previous; /* not 0: the old file is removed instead of being kept as PATH.previous */
  const char* lease;    /* the file or folder to which only this job may write from now on; null: PATH */
  size_t keep; /* the oldest step-NUMBER.h5 files of the folder are removed until this many are left; 0: all stay */
} hvd_checkpoint_options;

/* Writes a checkpoint. The entries must include every group that contains other entries; their order does not matter.
 * Returns when the file is durable; the memory of tensors is borrowed until then. Only rank 0 has to pass entries. A
 * path is refused if a living process of another job writes to it. options may be null. */
HVD_API hvd_status hvd_checkpoint_save(hvd_runtime* runtime, const char* path, const hvd_checkpoint_entry* entries,
                                       size_t count, const hvd_checkpoint_options* options);

/* Copies the tensors of the entries into `memory`, in their order, each at a multiple of 64 bytes from its start, and
 * points the entries to the copies. The program may then change its tensors while another thread saves the copies.
 * An entry whose data is null gets a place for the caller to fill, from the memory of a GPU for instance. Before the
 * call, *bytes is the size of `memory`; after it, *bytes is the size that the copies need. If `memory` is null, only
 * *bytes is set. Local. */
HVD_API hvd_status hvd_checkpoint_copy(hvd_checkpoint_entry* entries, size_t count, void* memory, size_t* bytes);

typedef struct hvd_checkpoint hvd_checkpoint; /* a checkpoint that is open for reading */

/* Opens a checkpoint. If the path is a folder, opens the newest complete checkpoint in it. Every byte of the file is
 * verified. If a file is damaged, the one before it is opened instead (PATH.previous, or the next newest of the
 * folder), with a warning. */
HVD_API hvd_status hvd_checkpoint_open(hvd_runtime* runtime, const char* path, hvd_checkpoint** checkpoint);
/* Opens the newest complete checkpoint in a folder whose sequence (hvd_checkpoint_info) is lower than the given one,
 * for a program that cannot use the checkpoint it has opened: a file of its own beside it is damaged. */
HVD_API hvd_status hvd_checkpoint_open_before(hvd_runtime* runtime, const char* folder, int64_t sequence,
                                              hvd_checkpoint** checkpoint);
HVD_API void hvd_checkpoint_close(hvd_checkpoint* checkpoint); /* local; null is allowed */

typedef struct hvd_checkpoint_info {
  size_t struct_size; /* the caller sets it to sizeof(hvd_checkpoint_info) */
  const char* path;   /* path of the file; valid until the checkpoint is closed */
  size_t entries;
  uint64_t bytes;
  int64_t step;     /* the step of the training; negative: unknown */
  int64_t sequence; /* grows with every checkpoint written to the folder */
  int64_t saved_at; /* time of writing in seconds since 1970, by the clock of the process that wrote it */
} hvd_checkpoint_info;
HVD_API hvd_status hvd_checkpoint_get_info(hvd_checkpoint* checkpoint, hvd_checkpoint_info* info);
/* Gives the index-th entry in the order of paths. Its pointers are valid until the checkpoint is closed. */
HVD_API hvd_status hvd_checkpoint_get_entry(hvd_checkpoint* checkpoint, size_t index, hvd_checkpoint_entry* entry);

typedef struct hvd_checkpoint_target {
  size_t struct_size; /* sizeof(hvd_checkpoint_target); the elements of an array are this far apart */
  const char* path;   /* the path of a tensor */
  void* data;         /* host memory that receives the tensor */
  size_t bytes;       /* size of the tensor */
} hvd_checkpoint_target;
/* Reads tensors. With a runtime it is collective over the ranks that opened the checkpoint, and all ranks pass the same
 * paths. Rank 0 reads; the other ranks get the bytes by broadcasts. */
HVD_API hvd_status hvd_checkpoint_read(hvd_checkpoint* checkpoint, const hvd_checkpoint_target* targets, size_t count);

/* Takes the exclusive right to write to a path (see hvd_checkpoint_options.lease), as hvd_checkpoint_save does. If this
 * process has the right already, checks that this is still so. Fails with HVD_INVALID_ARGUMENT if a process of another
 * job has it. Call it before you write or remove files of your own beside a checkpoint. Local. */
HVD_API hvd_status hvd_checkpoint_claim(const char* path);
/* Gives up the exclusive right to write to a path (see hvd_checkpoint_options.lease). Without this call the process
 * keeps the right until it ends. Local. */
HVD_API void hvd_checkpoint_release(const char* path);
/* Opens the HDF5 library if it is not open yet: the one that HOROVOD_HDF5 names, else the first that the loader finds,
 * else the file `otherwise` (null: no such file). The other functions open the library themselves if needed. Local. */
HVD_API hvd_status hvd_checkpoint_library(const char* otherwise);

/* ---- meetings ---------------------------------------------------------------------------------------------------- */

/* A meeting is for a program that starts ranks itself, in place of horovodrun: on a cluster's workers, in pods, under
 * another scheduler. It is a store in that program, which the ranks reach over TCP. The ranks meet there in hvd_init(),
 * and the ranks and the program put and get values. Needs no runtime, and the program is no rank. A process that knows
 * the meeting's secret can take part. Values are not encrypted on their way, but a process without the secret cannot
 * change them.
 *
 * Calls with one meeting run one after the other. A forked child cannot use its parent's meeting, but may enter it. */
typedef struct hvd_meeting hvd_meeting;

typedef struct hvd_meeting_options {
  size_t struct_size;     /* sizeof(hvd_meeting_options) */
  int size;               /* number of ranks */
  const char* interfaces; /* network interfaces to listen on, "eth0,ib0"; null: as HOROVOD_GLOO_IFACE says, else all */
  int first_port, last_port; /* range of ports; 0: as HOROVOD_PORT_RANGE says, else any */
} hvd_meeting_options;

/* Opens a meeting in this process. A thread serves it until hvd_meeting_close(). */
HVD_API hvd_status hvd_meeting_open(const hvd_meeting_options* options, hvd_meeting** meeting);
/* Enters a meeting that another process has opened, to put and get values. The three texts are the values of
 * HOROVOD_GLOO_RENDEZVOUS_ADDR, HOROVOD_GLOO_RENDEZVOUS_PORT and HOROVOD_SECRET_KEY from hvd_meeting_variables().
 * `timeout_ms` may be negative: no limit. */
HVD_API hvd_status hvd_meeting_enter(const char* addresses, const char* port, const char* secret, int64_t timeout_ms,
                                     hvd_meeting** meeting);
/* Calls visit for each environment variable by which a process becomes this rank of the meeting in hvd_init(). One of
 * them is the secret: do not put it on a command line, or anywhere else where others can read it. The texts are valid
 * during the call. Only for the process that opened the meeting. */
HVD_API hvd_status hvd_meeting_variables(hvd_meeting* meeting, int rank,
                                         void (*visit)(void* context, const char* name, const char* value),
                                         void* context);
/* Tells the meeting that the process of a rank has ended, so that ranks which wait for it in hvd_init() fail at once.
 * `how` completes "rank 3 …", such as "exited with code 1". Does no harm for a rank that has done its part. */
HVD_API hvd_status hvd_meeting_rank_ended(hvd_meeting* meeting, int rank, const char* how);
/* Puts a value under a key of 1 to 256 bytes, in place of an earlier one. Others get the whole value or none. */
HVD_API hvd_status hvd_meeting_put(hvd_meeting* meeting, const char* key, const void* data, size_t bytes);
/* Waits until there is a value of that key, and gives its size. Returns HVD_TIMEOUT if the time has passed. A negative
 * `timeout_ms` is no limit; with 0 the call only looks. HVD_PEER_LOST: the process that opened the meeting has
 * ended. */
HVD_API hvd_status hvd_meeting_wait(hvd_meeting* meeting, const char* key, int64_t timeout_ms, size_t* bytes);
/* Copies a value that is there into memory of its size. If `forget` is not 0, it is not kept for others; with another
 * size nothing is copied or forgotten. */
HVD_API hvd_status hvd_meeting_get(hvd_meeting* meeting, const char* key, void* data, size_t bytes, int forget);
/* Ends a meeting that this process has opened, or leaves one that it has entered. Null is allowed. */
HVD_API void hvd_meeting_close(hvd_meeting* meeting);

/* ---- looking inside ---------------------------------------------------------------------------------------------- */

/* Returns a counter for tests and tools: "requests_sent", "log_bytes", "batches", "engine_sleeps", "plans",
 * "operations" (those that the program holds or that have a slot), "frames_sent" and "frames_received" (messages
 * between nodes about ready operations, on the lowest rank of a node), … Returns -1 if there is no counter of that
 * name. */
HVD_API int64_t hvd_counter(hvd_runtime* runtime, const char* name);
/* Calls visit once per knob of the configuration: name, kind, default, meaning. */
HVD_API void hvd_visit_knobs(void (*visit)(void* context, const char* name, const char* kind, const char* default_value,
                                           const char* meaning),
                             void* context);
/* Calls visit once per setting: its name, its value in this process, and where that comes from: "default",
 * "environment", or a file of the site or of the user and the line. A flag's value is 0 or 1, whatever word set it.
 * Fails if such a file is faulty. */
HVD_API hvd_status hvd_visit_settings(void (*visit)(void* context, const char* name, const char* value,
                                                    const char* origin),
                                      void* context);

#ifdef __cplusplus
}
#endif
#endif /* HOROVOD_H */
