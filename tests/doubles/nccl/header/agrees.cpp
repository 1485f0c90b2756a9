// Compiling this file compares what native/nccl/library.hpp declares with NCCL's own header: the values, the beginning
// of ncclConfig_t, and of each function how many parameters it has and how large they are.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "native/nccl/library.hpp"

namespace hvd::nccl {
namespace {

template <typename Ours, typename Theirs>
inline constexpr bool are_alike =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;
template <typename Ours, typename Theirs>
inline constexpr bool agree = false;
template <typename... Ours, typename... Theirs>
inline constexpr bool agree<Code (*)(Ours...), ncclResult_t (*)(Theirs...)> =
    sizeof...(Ours) == sizeof...(Theirs) && [] {
      if constexpr (sizeof...(Ours) == sizeof...(Theirs)) return (are_alike<Ours, Theirs> && ...);
      return false;
    }();

#define HVD_AGREES(member, theirs) \
  static_assert(agree<decltype(Library::member), decltype(&theirs)>, "the parameters of " #theirs);
HVD_AGREES(get_version, ::ncclGetVersion)
HVD_AGREES(get_unique_id, ::ncclGetUniqueId)
HVD_AGREES(init, ::ncclCommInitRankConfig)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
HVD_AGREES(init_scalable, ::ncclCommInitRankScalable)
#endif
HVD_AGREES(async_error, ::ncclCommGetAsyncError)
HVD_AGREES(finalize, ::ncclCommFinalize)
HVD_AGREES(destroy, ::ncclCommDestroy)
HVD_AGREES(abort, ::ncclCommAbort)
HVD_AGREES(group_start, ::ncclGroupStart)
HVD_AGREES(group_end, ::ncclGroupEnd)
HVD_AGREES(allreduce, ::ncclAllReduce)
HVD_AGREES(reduce, ::ncclReduce)
HVD_AGREES(reduce_scatter, ::ncclReduceScatter)
HVD_AGREES(broadcast, ::ncclBroadcast)
HVD_AGREES(allgather, ::ncclAllGather)
HVD_AGREES(send, ::ncclSend)
HVD_AGREES(receive, ::ncclRecv)

#define HVD_IS(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #theirs);
HVD_IS(Code::success, ncclSuccess)
HVD_IS(Code::unhandled_cuda_error, ncclUnhandledCudaError)
HVD_IS(Code::system_error, ncclSystemError)
HVD_IS(Code::internal_error, ncclInternalError)
HVD_IS(Code::invalid_argument, ncclInvalidArgument)
HVD_IS(Code::invalid_usage, ncclInvalidUsage)
HVD_IS(Code::remote_error, ncclRemoteError)
HVD_IS(Code::in_progress, ncclInProgress)
HVD_IS(Type::i8, ncclInt8)
HVD_IS(Type::u8, ncclUint8)
HVD_IS(Type::i32, ncclInt32)
HVD_IS(Type::u32, ncclUint32)
HVD_IS(Type::i64, ncclInt64)
HVD_IS(Type::u64, ncclUint64)
HVD_IS(Type::f16, ncclFloat16)
HVD_IS(Type::f32, ncclFloat32)
HVD_IS(Type::f64, ncclFloat64)
HVD_IS(Type::bf16, ncclBfloat16)
HVD_IS(Operation::sum, ncclSum)
HVD_IS(Operation::product, ncclProd)
HVD_IS(Operation::max, ncclMax)
HVD_IS(Operation::min, ncclMin)
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));

#define HVD_LIES_AT(ours, theirs)                                                               \
  static_assert(offsetof(CommunicatorConfig, ours) == offsetof(ncclConfig_t, theirs), #theirs); \
  static_assert(sizeof(CommunicatorConfig::ours) == sizeof(ncclConfig_t::theirs), #theirs);
HVD_LIES_AT(size, size)
HVD_LIES_AT(magic, magic)
HVD_LIES_AT(version, version)
HVD_LIES_AT(blocking, blocking)
HVD_LIES_AT(cga_cluster_size, cgaClusterSize)
HVD_LIES_AT(min_ctas, minCTAs)
HVD_LIES_AT(max_ctas, maxCTAs)
HVD_LIES_AT(net_name, netName)
HVD_LIES_AT(split_share, splitShare)
HVD_LIES_AT(traffic_class, trafficClass)
HVD_LIES_AT(name, commName)
static_assert(NCCL_CONFIG_UNDEF_INT == INT_MIN);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
HVD_LIES_AT(nvls_host_mode, nvlsHostMode)
HVD_IS(INT_MAX, ncclNvlsHostModeDisable)
#endif

}  // namespace
}  // namespace hvd::nccl
