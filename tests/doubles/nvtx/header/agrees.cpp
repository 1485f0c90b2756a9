// Compiling this file compares what native/nvtx declares with NVIDIA's own header.
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExt.h>

#include <cstddef>

#include "native/nvtx/profiler.hpp"

namespace hvd::nvtx {
namespace {

#define HVD_IS(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #theirs);
#define HVD_LIES_AT(ours, theirs) HVD_IS(offsetof(Attributes, ours), offsetof(nvtxEventAttributes_t, theirs))
HVD_IS(sizeof(Attributes), NVTX_EVENT_ATTRIB_STRUCT_SIZE)
HVD_LIES_AT(version, version)
HVD_LIES_AT(size, size)
HVD_LIES_AT(category, category)
HVD_LIES_AT(color_kind, colorType)
HVD_LIES_AT(color, color)
HVD_LIES_AT(payload_kind, payloadType)
HVD_LIES_AT(payload, payload)
HVD_LIES_AT(message_kind, messageType)
HVD_LIES_AT(message, message)
HVD_IS(ascii, NVTX_MESSAGE_TYPE_ASCII)
HVD_IS(unsigned_64, NVTX_PAYLOAD_TYPE_UNSIGNED_INT64)
HVD_IS(sizeof(RangeId), sizeof(nvtxRangeId_t))
HVD_IS(Function::range_start, NVTX_CBID_CORE2_DomainRangeStartEx)
HVD_IS(Function::range_end, NVTX_CBID_CORE2_DomainRangeEnd)
HVD_IS(Function::domain_create, NVTX_CBID_CORE2_DomainCreateA)
HVD_IS(1, NVTX_ETID_CALLBACKS)
HVD_IS(3, NVTX_ETID_VERSIONINFO)
HVD_IS(5, NVTX_CB_MODULE_CORE2)
HVD_IS(7, NVTX_CB_MODULE_SIZE)
HVD_IS(16, NVTX_CBID_CORE_SIZE)
HVD_IS(9, NVTX_CBID_CUDA_SIZE)
HVD_IS(15, NVTX_CBID_OPENCL_SIZE)
HVD_IS(7, NVTX_CBID_CUDART_SIZE)
HVD_IS(16, NVTX_CBID_CORE2_SIZE)
HVD_IS(7, NVTX_CBID_SYNC_SIZE)

}  // namespace
}  // namespace hvd::nvtx
