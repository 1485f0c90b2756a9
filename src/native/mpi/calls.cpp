// This file is compiled once per ABI, against that ABI's mpi.h. It is linked to no MPI library: its names are bound to
// the library that the process has (process.cpp).
#include <mpi.h>

#include <climits>
#include <cstring>
#include <vector>

#include "base/reduce_op.hpp"
#include "native/mpi/plugin.hpp"

namespace hvd::mpi {
namespace {

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "error " + std::to_string(code);
  return text;
}
Error failure_of(const char* what, int code) {
  return {ErrorCode::system, std::string("MPI: ") + what + ": " + text_of(code)};
}
Status status_of(const char* what, int code) {
  if (code == MPI_SUCCESS) return {};
  return failure_of(what, code);
}

// MPI's handles are integers or pointers. All are stored as bits.
static_assert(sizeof(MPI_Request) <= sizeof(Request) && sizeof(MPI_Comm) <= sizeof(Request));
Request to_bits(MPI_Request request) {
  std::uintptr_t bits = 0;
  std::memcpy(&bits, &request, sizeof(MPI_Request));
  return Request{bits};
}
MPI_Request from_bits(Request request) {
  MPI_Request result;
  std::memcpy(&result, &request, sizeof(MPI_Request));
  return result;
}

MPI_Datatype type_of(DataType dtype) {
  switch (dtype) {
    case DataType::boolean: return MPI_C_BOOL;
    case DataType::u8: return MPI_UINT8_T;
    case DataType::i8: return MPI_INT8_T;
    case DataType::u16: return MPI_UINT16_T;
    case DataType::i16: return MPI_INT16_T;
    case DataType::i32: return MPI_INT32_T;
    case DataType::i64: return MPI_INT64_T;
    case DataType::f32: return MPI_FLOAT;
    case DataType::f64: return MPI_DOUBLE;
    case DataType::u32: return MPI_UINT32_T;
    case DataType::u64: return MPI_UINT64_T;
    case DataType::f16:
    case DataType::bf16: break;
  }
  return MPI_DATATYPE_NULL;
}

// Data that are only moved travel as integers of their size, because MPI does not know 16-bit floats.
MPI_Datatype moved_type_of(DataType dtype) {
  switch (size_of(dtype)) {
    case 1: return MPI_UINT8_T;
    case 2: return MPI_UINT16_T;
    case 4: return MPI_UINT32_T;
    case 8: return MPI_UINT64_T;
    default: return MPI_DATATYPE_NULL;  // which MPI refuses
  }
}

MPI_Op operation_of(DataType dtype, ReduceOp op) {
  const bool is_boolean = dtype == DataType::boolean;
  switch (is_boolean ? row_of(op)->on_boolean : op) {
    case ReduceOp::sum: return MPI_SUM;
    case ReduceOp::max: return is_boolean ? MPI_LOR : MPI_MAX;
    case ReduceOp::min: return is_boolean ? MPI_LAND : MPI_MIN;
    case ReduceOp::product: return MPI_PROD;
  }
  return MPI_OP_NULL;
}

// True if MPI reduces the type as our kernels do. For min and max of NaN, MPI may give any result; ours give NaN.
bool reduces(DataType dtype, ReduceOp op) {
  return takes(op, dtype) && type_of(dtype) != MPI_DATATYPE_NULL && !(is_floating(dtype) && row_of(op)->selects);
}

bool is_finalized() {
  int answer = 0;
  return MPI_Finalized(&answer) == MPI_SUCCESS && answer != 0;
}

class OverMpi final : public Communicator {
 public:
  // If `ours` is true, release() frees the communicator.
  static Result<std::unique_ptr<Communicator>> over(MPI_Comm comm, bool ours) {
    std::unique_ptr<OverMpi> made(new OverMpi(comm, ours));
    if (ours) MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (int code = MPI_Comm_rank(comm, &made->rank_); code != MPI_SUCCESS) return failure_of("MPI_Comm_rank", code);
    if (int code = MPI_Comm_size(comm, &made->size_); code != MPI_SUCCESS) return failure_of("MPI_Comm_size", code);
    int is_inter = 0;
    MPI_Comm_test_inter(comm, &is_inter);
    if (is_inter != 0)
      return Error(ErrorCode::invalid_argument,
                   "the communicator connects two groups (an intercommunicator); give one whose processes are all of "
                   "one group, as MPI_Intercomm_merge makes it");
    void* value = nullptr;
    int is_set = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &is_set);
    made->highest_tag_ = is_set != 0 ? *static_cast<int*>(value) : 32767;  // the smallest limit that MPI allows
    return std::unique_ptr<Communicator>(std::move(made));
  }

  Status isend(int to, ConstBytes bytes, int tag, Request& request) override {
    MPI_Request made = MPI_REQUEST_NULL;
    int code = MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, tag, comm_, &made);
    request = to_bits(made);
    return status_of("MPI_Isend", code);
  }

  Status irecv(int from, Bytes bytes, int tag, Request& request) override {
    MPI_Request made = MPI_REQUEST_NULL;
    int code = MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, from, tag, comm_, &made);
    request = to_bits(made);
    return status_of("MPI_Irecv", code);
  }

  Completion test(Request& request, std::size_t& received) override {
    MPI_Request asked = from_bits(request);
    MPI_Status status;
    int is_over = 0;
    int code = MPI_Test(&asked, &is_over, &status);
    request = to_bits(asked);
    if (code != MPI_SUCCESS) {
      failure_ = failure_of("MPI_Test", code);
      int kind = MPI_ERR_OTHER;
      MPI_Error_class(code, &kind);
      if (kind == MPI_ERR_TRUNCATE) failure_.code = ErrorCode::mismatch;
      return Completion::failed;
    }
    if (is_over == 0) return Completion::pending;
    int was_cancelled = 0;
    MPI_Test_cancelled(&status, &was_cancelled);
    if (was_cancelled != 0) return Completion::cancelled;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    received = count == MPI_UNDEFINED ? 0 : static_cast<std::size_t>(count);
    return Completion::done;
  }

  void cancel(Request& request) noexcept override {
    MPI_Request asked = from_bits(request);
    if (asked != MPI_REQUEST_NULL) MPI_Cancel(&asked);
  }

  Status start(const CollectiveCall& call, Request& request) override {
    MPI_Request made = MPI_REQUEST_NULL;
    int code = begin(call, made);
    request = to_bits(made);
    return status_of(name_of(call.verb), code);
  }

  void progress() noexcept override {
    int is_there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &is_there, MPI_STATUS_IGNORE);
  }
  const Error& failure() const override { return failure_; }

  Status allgather(ConstBytes mine, Bytes all) override {
    auto count = static_cast<int>(mine.size());
    return status_of("MPI_Allgather", MPI_Allgather(mine.data(), count, MPI_BYTE, all.data(), count, MPI_BYTE, comm_));
  }

  Result<std::unique_ptr<Communicator>> subgroup(std::span<const int> members, int tag) override {
    MPI_Group everybody = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
    MPI_Comm made = MPI_COMM_NULL;
    int code = MPI_Comm_group(comm_, &everybody);
    if (code == MPI_SUCCESS) code = MPI_Group_incl(everybody, static_cast<int>(members.size()), members.data(), &group);
    if (code == MPI_SUCCESS) code = MPI_Comm_create_group(comm_, group, tag, &made);
    if (group != MPI_GROUP_NULL) MPI_Group_free(&group);
    if (everybody != MPI_GROUP_NULL) MPI_Group_free(&everybody);
    if (code != MPI_SUCCESS) return failure_of("MPI_Comm_create_group", code);
    if (made == MPI_COMM_NULL) return Error(ErrorCode::invalid_argument, "MPI: this process is not of that group");
    return over(made, true);
  }

  void release() noexcept override {
    // Nothing is freed if the program has ended MPI before.
    if (is_ours_ && comm_ != MPI_COMM_NULL && !is_finalized()) MPI_Comm_free(&comm_);
  }

 private:
  OverMpi(MPI_Comm comm, bool ours) : comm_(comm), is_ours_(ours) {}

  int begin(const CollectiveCall& call, MPI_Request& made) {
    auto count = static_cast<int>(call.count);
    MPI_Op op = operation_of(call.dtype, call.op);
    MPI_Datatype moved = moved_type_of(call.dtype);
    switch (call.verb) {
      case Verb::allreduce:
        return MPI_Iallreduce(MPI_IN_PLACE, call.output, count, type_of(call.dtype), op, comm_, &made);
      case Verb::broadcast: return MPI_Ibcast(call.output, count, moved, call.root, comm_, &made);
      case Verb::barrier: return MPI_Ibarrier(comm_, &made);
      case Verb::allgather:
        return MPI_Iallgatherv(call.input, call.counts[static_cast<std::size_t>(rank_)], moved, call.output,
                               call.counts.data(), call.displacements.data(), moved, comm_, &made);
      case Verb::alltoall:
        return MPI_Ialltoallv(call.input, call.counts.data(), call.displacements.data(), moved, call.output,
                              call.received_counts.data(), call.received_displacements.data(), moved, comm_, &made);
      case Verb::reduce_scatter:
        return MPI_Ireduce_scatter(call.input, call.output, call.counts.data(), type_of(call.dtype), op, comm_, &made);
      case Verb::join:
      case Verb::adasum:
      case Verb::add_set:
      case Verb::remove_set: break;
    }
    return MPI_ERR_ARG;
  }

  MPI_Comm comm_;
  bool is_ours_;
  Error failure_{ErrorCode::system, "MPI"};
};

std::string version() {
  std::vector<char> text(MPI_MAX_LIBRARY_VERSION_STRING + 1, '\0');
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::string line(text.data());
  line.resize(std::min(line.find_first_of("\n,"), line.size()));  // Open MPI's text continues after a comma
  while (!line.empty() && static_cast<unsigned char>(line.back()) <= ' ') line.pop_back();
  if (auto tab = line.find('\t'); tab != std::string::npos) line.replace(tab, 1, " ");
  return line;
}

bool is_initialized() {
  int answer = 0;
  return MPI_Initialized(&answer) == MPI_SUCCESS && answer != 0;
}

ThreadLevel level_of(int number) {
  if (number == MPI_THREAD_MULTIPLE) return ThreadLevel::multiple;
  if (number == MPI_THREAD_SERIALIZED) return ThreadLevel::serialized;
  return number == MPI_THREAD_FUNNELED ? ThreadLevel::funneled : ThreadLevel::single;
}

Result<ThreadLevel> initialize(ThreadLevel wanted) {
  int provided = MPI_THREAD_SINGLE;
  int asked = wanted == ThreadLevel::multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED;
  if (int code = MPI_Init_thread(nullptr, nullptr, asked, &provided); code != MPI_SUCCESS)
    return failure_of("MPI_Init_thread", code);
  // Our handler is set on our communicator only. Some libraries report errors of a request (a message too long) to the
  // world's handler and not to that of its communicator. But if the program initialised MPI, the world's handlers
  // belong to the program.
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  return level_of(provided);
}
ThreadLevel thread_level() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  return level_of(provided);
}
void finalize() {
  MPI_Finalize();
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF before everything else (MPI 4.1, 11.2.4).
void (*hook_before_finalize)() = nullptr;
int call_hook(MPI_Comm, int, void*, void*) {
  hook_before_finalize();
  return MPI_SUCCESS;
}
void before_finalize(void (*hook)()) {
  hook_before_finalize = hook;
  int key = MPI_KEYVAL_INVALID;
  if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &call_hook, &key, nullptr) == MPI_SUCCESS)
    MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

Result<std::unique_ptr<Communicator>> duplicate(const void* communicator, Deadline deadline) {
  MPI_Comm original = MPI_COMM_WORLD;
  if (communicator != nullptr) std::memcpy(&original, communicator, sizeof(MPI_Comm));
  if (original == MPI_COMM_NULL)
    return Error(ErrorCode::invalid_argument,
                 "the communicator is MPI_COMM_NULL: this process is none of its members and must not call hvd.init() "
                 "with it");
  auto made = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_Comm_idup(original, made.get(), &request);
  Naps naps;
  for (int is_over = 0; code == MPI_SUCCESS;) {
    code = MPI_Test(&request, &is_over, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && is_over != 0) return OverMpi::over(*made, true);
    if (deadline.passed()) {
      (void)made.release();  // this memory is never freed, because MPI may still write to it
      return Error(ErrorCode::timeout,
                   "MPI_Comm_idup does not end");  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
    }
    naps.take();
  }
  return failure_of("MPI_Comm_idup", code);
}
bool is_world(const void* communicator) {
  MPI_Comm asked = MPI_COMM_NULL;
  std::memcpy(&asked, communicator, sizeof(MPI_Comm));
  return asked == MPI_COMM_WORLD;
}
Result<std::unique_ptr<Communicator>> world() {
  return OverMpi::over(MPI_COMM_WORLD, false);
}

const void* where() {
  return reinterpret_cast<const void*>(&MPI_Init_thread);
}

const MpiPlugin table = {posix::plugin_stamp(sizeof(MpiPlugin)),
                         HVD_MPI_ABI,
                         sizeof(MPI_Comm),
                         &where,
                         &version,
                         &is_initialized,
                         &is_finalized,
                         &initialize,
                         &thread_level,
                         &finalize,
                         &before_finalize,
                         &duplicate,
                         &is_world,
                         &world,
                         &reduces};

}  // namespace
}  // namespace hvd::mpi

extern "C" __attribute__((visibility("default"))) const void* horovod_mpi_plugin() {
  return &hvd::mpi::table;
}
