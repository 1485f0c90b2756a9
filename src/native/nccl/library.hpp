#pragma once
// The entry points of NCCL, found by name at run time in the library that the process has, so that a program and we use
// one NCCL. Nothing here needs NCCL's header: the few types and values are declared again (tests/doubles/nccl/header
// compares them with nccl.h where that is present).
//
// Only the plugin for NCCL contains this code.
#include <array>
#include <climits>
#include <cstddef>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/settings/environment.hpp"

namespace hvd::nccl {

// Newer libraries may return other values, too.
enum class Code : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
  timeout = 8,
};
enum class Type : int { i8 = 0, u8 = 1, i32 = 2, u32 = 3, i64 = 4, u64 = 5, f16 = 6, f32 = 7, f64 = 8, bf16 = 9 };
enum class Operation : int { sum = 0, product = 1, max = 2, min = 3 };

using CommunicatorHandle = struct CommunicatorOfNccl*;
using StreamHandle = void*;  // a stream of CUDA
struct UniqueId {
  char bytes[128];
};

// ncclConfig_t. Its first members are of 2.27. Libraries complete what is missing at the end.
struct CommunicatorConfig {
  static constexpr std::size_t size_of_22700 = 56;
  std::size_t size = size_of_22700;
  unsigned magic = 0xcafebeef;
  unsigned version = 22700;  // of the header that the members are of
  int blocking = 0;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* name = nullptr;
  // The others are of 2.31.
  std::array<int, 14> others = filled(INT_MIN);
  int nvls_host_mode = INT_MIN;

  // The communicator takes none of the few groups that an NVSwitch can serve by multicast. Needs 2.31.
  void do_without_nvls() {
    size = sizeof(CommunicatorConfig);
    version = first_with_nvls_mode;
    nvls_host_mode = INT_MAX;
  }
  static constexpr int first_with_nvls_mode = 23100;

 private:
  static constexpr std::array<int, 14> filled(int value) {
    std::array<int, 14> all{};
    for (int& one : all) one = value;
    return all;
  }
};

// As ncclGetVersion() counts: 10000 times the first number, 100 times the second, and the third.
inline constexpr int oldest_version = 21800;

// NEEDED(member, name of the symbol, parameters …) for each. Every library that is not too old has them all.
// clang-format off
#define HVD_NCCL_ENTRY_POINTS(NEEDED, OPTIONAL)                                                              \
  NEEDED(get_version, "ncclGetVersion", int* version)                                                        \
  NEEDED(get_unique_id, "ncclGetUniqueId", UniqueId* id)                                                     \
  NEEDED(init, "ncclCommInitRankConfig", CommunicatorHandle* communicator, int ranks, UniqueId id, int rank, CommunicatorConfig* config) \
  OPTIONAL(init_scalable, "ncclCommInitRankScalable", CommunicatorHandle* communicator, int ranks, int rank, int id_count, UniqueId* ids, CommunicatorConfig* config) \
  NEEDED(async_error, "ncclCommGetAsyncError", CommunicatorHandle communicator, Code* code)                  \
  NEEDED(finalize, "ncclCommFinalize", CommunicatorHandle communicator)                                      \
  NEEDED(destroy, "ncclCommDestroy", CommunicatorHandle communicator)                                        \
  NEEDED(abort, "ncclCommAbort", CommunicatorHandle communicator)                                            \
  NEEDED(group_start, "ncclGroupStart")                                                                      \
  NEEDED(group_end, "ncclGroupEnd")                                                                          \
  NEEDED(allreduce, "ncclAllReduce", const void* from, void* to, std::size_t count, Type type, Operation operation, CommunicatorHandle communicator, StreamHandle stream) \
  NEEDED(reduce, "ncclReduce", const void* from, void* to, std::size_t count, Type type, Operation operation, int root, CommunicatorHandle communicator, StreamHandle stream) \
  NEEDED(reduce_scatter, "ncclReduceScatter", const void* from, void* to, std::size_t count_of_each, Type type, Operation operation, CommunicatorHandle communicator, StreamHandle stream) \
  NEEDED(broadcast, "ncclBroadcast", const void* from, void* to, std::size_t count, Type type, int root, CommunicatorHandle communicator, StreamHandle stream) \
  NEEDED(allgather, "ncclAllGather", const void* from, void* to, std::size_t count_of_each, Type type, CommunicatorHandle communicator, StreamHandle stream) \
  NEEDED(send, "ncclSend", const void* from, std::size_t count, Type type, int to, CommunicatorHandle communicator, StreamHandle stream) \
  NEEDED(receive, "ncclRecv", void* to, std::size_t count, Type type, int from, CommunicatorHandle communicator, StreamHandle stream)
// clang-format on

struct Library {
#define HVD_ENTRY_POINT(member, name, ...) Code (*member)(__VA_ARGS__) = nullptr;
  HVD_NCCL_ENTRY_POINTS(HVD_ENTRY_POINT, HVD_ENTRY_POINT)
#undef HVD_ENTRY_POINT
  const char* (*code_text)(Code code) = nullptr;
  const char* (*last_error)(CommunicatorHandle communicator) = nullptr;
  std::string path;  // as it was opened
  int version = 0;
};

// Returns the files of all NCCLs that the process has loaded, each once.
std::vector<std::string> loaded_libraries();

// Opens a library, by path or by a name that the loader finds. It stays in the process for good. The error names what
// was found and what is needed.
Result<Library> load_library(const std::string& name);

// The NCCL of this process: the file that HOROVOD_NCCL_LIBRARY names; else the one that the process has; else the one
// that the loader finds; else PyPI's, in a folder above this plugin. Fails if the process has two. May load a library
// of some hundred megabytes.
Result<Library> find_library(const Environment& environment);
// The same, found at the first call.
Result<const Library*> open_library(const Environment& environment);

// "2.28.9" for 22809.
std::string version_text(int version);
// What is known to be wrong with this version, and which one to take; empty if nothing is.
std::string known_fault(int version);
// What is wrong with it where stacks are unlimited (ulimit -s).
std::string fault_with_stack(int version, bool is_unlimited);
// Both, in this process.
std::string known_faults_here(int version);

// "WHAT: NCCL's text (code 3): the last line that NCCL has to say about it: what to do". `communicator` may be null.
Error error_of(const Library& library, Code code, CommunicatorHandle communicator, const std::string& what,
               std::source_location origin = std::source_location::current());

}  // namespace hvd::nccl
