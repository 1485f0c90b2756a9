#pragma once
// Ranges for NVIDIA's profilers (NVTX, version 3). A profiler that wants them names a library of its own in
// NVTX_INJECTION64_PATH; that library puts its functions into tables that we offer to it. Nothing here needs NVIDIA's
// header or a library of CUDA: the few types and values are declared again (tests/doubles/nvtx/header compares them
// with nvToolsExt.h where that is present).
#include <cstdint>

#include "base/result.hpp"
#include "base/settings/environment.hpp"

namespace hvd::nvtx {

using DomainHandle = struct DomainOfProfiler*;  // a name under which the profiler shows ranges
using RangeId = std::uint64_t;

inline constexpr int ascii = 1, unsigned_64 = 1;  // kinds of a message and of a payload

// As nvtxEventAttributes_t.
struct Attributes {
  std::uint16_t version = 3;
  std::uint16_t size = 48;
  std::uint32_t category = 0;
  std::int32_t color_kind = 0;
  std::uint32_t color = 0;
  std::int32_t payload_kind = unsigned_64;
  std::int32_t reserved = 0;
  std::uint64_t payload = 0;  // a number that is shown with the range
  std::int32_t message_kind = ascii;
  const char* message = nullptr;
};
static_assert(sizeof(Attributes) == 48);

// The numbers of these functions in the profiler's table.
enum class Function : unsigned { range_start = 2, range_end = 3, domain_create = 12 };

// The functions of the profiler. None is null.
struct Profiler {
  RangeId (*range_start)(DomainHandle domain, const Attributes* attributes) = nullptr;
  void (*range_end)(DomainHandle domain, RangeId range) = nullptr;
  DomainHandle (*domain_create)(const char* name) = nullptr;
};

// Returns null if no profiler wants ranges. The first call loads its library, which stays for
// good.
Result<const Profiler*> profiler(const Environment& environment);

}  // namespace hvd::nvtx
