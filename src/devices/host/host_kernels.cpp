#include "devices/host/host_kernels.hpp"

#include "devices/host/highway_targets.hpp"  // must come before highway.h
#include "devices/host/kernel_table.hpp"

#include <hwy/highway.h>

#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/processor.hpp"

// The files reduce_*.cpp define these functions for each instruction set.
#define HVD_DECLARE_KERNELS(NAMESPACE)                   \
  namespace hvd::devices::NAMESPACE {                    \
  void add_float_kernels(KernelTable& table) noexcept;   \
  void add_half_kernels(KernelTable& table) noexcept;    \
  void add_integer_kernels(KernelTable& table) noexcept; \
  }
#define HVD_ADD_TABLE(NAMESPACE) \
  add(HWY_STR(NAMESPACE), &NAMESPACE::add_float_kernels, &NAMESPACE::add_half_kernels, &NAMESPACE::add_integer_kernels)

// The static target is the instruction set that every CPU of this architecture has.
#define HVD_DYNAMIC_TARGET(TARGET) ((HWY_TARGETS & (TARGET)) != 0 && HWY_STATIC_TARGET != (TARGET))
HVD_DECLARE_KERNELS(HWY_NAMESPACE)
#if HVD_DYNAMIC_TARGET(HWY_AVX3)
HVD_DECLARE_KERNELS(N_AVX3)
#endif
#if HVD_DYNAMIC_TARGET(HWY_AVX2)
HVD_DECLARE_KERNELS(N_AVX2)
#endif

namespace hvd::devices {
namespace {

using AddKernels = void (*)(KernelTable&) noexcept;

struct Tables {
  std::array<KernelTable, 3> list;
  std::size_t count = 0;

  Tables() noexcept;
  void add(const char* name_space, AddKernels floats, AddKernels halves, AddKernels integers) noexcept {
    KernelTable& table = list[count++];
    table.instruction_set = name_space + 2;  // Highway's names begin with "N_", as in "N_AVX2"; this prefix is removed
    floats(table);
    halves(table);
    integers(table);
  }
};

Tables::Tables() noexcept {
#if HVD_DYNAMIC_TARGET(HWY_AVX3)
  if (processor().has_avx3) HVD_ADD_TABLE(N_AVX3);
#endif
#if HVD_DYNAMIC_TARGET(HWY_AVX2)
  if (processor().has_avx2) HVD_ADD_TABLE(N_AVX2);
#endif
  HVD_ADD_TABLE(HWY_NAMESPACE);
}

const Tables& tables() noexcept {
  static const Tables once;
  return once;
}

}  // namespace

std::span<const KernelTable> kernel_tables() noexcept {
  return {tables().list.data(), tables().count};
}

ReduceKernel reduce_kernel(DataType dtype, ReduceOp op) noexcept {
  return tables().list[0].at(dtype, op);
}

ProductsKernel products_kernel(DataType dtype) noexcept {
  return tables().list[0].products[static_cast<std::size_t>(dtype)];
}

WeightedSumKernel weighted_sum_kernel(DataType dtype) noexcept {
  return tables().list[0].weighted_sum[static_cast<std::size_t>(dtype)];
}

const char* instruction_set() noexcept {
  return tables().list[0].instruction_set;
}

void copy_streaming(void* to, const void* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  constexpr std::size_t line = 64;
  constexpr std::size_t worthwhile = 64 * line;  // shorter copies do not bypass the cache, because fence and uneven
                                                 // ends would cost more than is saved
  auto* destination = static_cast<unsigned char*>(to);
  auto* source = static_cast<const unsigned char*>(from);
  if (bytes >= worthwhile) {
    const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(destination) % line) % line;
    std::memcpy(destination, source, head);
    destination += head;
    source += head;
    bytes -= head;
    for (; bytes >= line; bytes -= line, destination += line, source += line) {
      const auto* in = reinterpret_cast<const __m128i*>(source);
      auto* out = reinterpret_cast<__m128i*>(destination);
      const __m128i first = _mm_loadu_si128(in), second = _mm_loadu_si128(in + 1);
      const __m128i third = _mm_loadu_si128(in + 2), fourth = _mm_loadu_si128(in + 3);
      _mm_stream_si128(out, first);
      _mm_stream_si128(out + 1, second);
      _mm_stream_si128(out + 2, third);
      _mm_stream_si128(out + 3, fourth);
    }
    _mm_sfence();  // other threads must see the streamed bytes before a flag that is set later
  }
  to = destination;
  from = source;
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace hvd::devices
