#include "mpi/sixteen_bit.hpp"

#include <bit>
#include <initializer_list>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace hvd::benchmark {

float from_half(std::uint16_t bits) {
  std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
  std::uint32_t exponent = (bits >> 10) & 31, mantissa = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t to_half(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000);
  std::uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return static_cast<std::uint16_t>(sign | 0x7c00);  // 65520 and more round to infinity
  if (magnitude < 0x38800000) {
    // For values below the smallest normal number. Adding 0.5 moves the last bit to be kept to the last bit of the sum,
    // so the addition rounds to this bit.
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000));
  }
  std::uint32_t rounded = magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

float from_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t to_bfloat(float value) {
  auto bits = std::bit_cast<std::uint32_t>(value);
  if (value != value) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

namespace {

void add_halves_scalar(const std::uint16_t* in, std::uint16_t* in_out, int count) {
  for (int i = 0; i < count; ++i) in_out[i] = to_half(from_half(in[i]) + from_half(in_out[i]));
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) void add_halves_f16c(const std::uint16_t* in, std::uint16_t* in_out, int count) {
  int i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256 a = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i)));
    __m256 b = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in_out + i)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(in_out + i), _mm256_cvtps_ph(_mm256_add_ps(a, b), 0));
  }
  add_halves_scalar(in + i, in_out + i, count - i);
}
#endif

void sum_halves(void* in, void* in_out, int* count, MPI_Datatype*) {
#if defined(__x86_64__)
  static const bool has_f16c = __builtin_cpu_supports("f16c") != 0;
  if (has_f16c)
    return add_halves_f16c(static_cast<const std::uint16_t*>(in), static_cast<std::uint16_t*>(in_out), *count);
#endif
  add_halves_scalar(static_cast<const std::uint16_t*>(in), static_cast<std::uint16_t*>(in_out), *count);
}

#if defined(__clang__)
#define HVD_BENCHMARK_SCALAR
#define HVD_BENCHMARK_SCALAR_LOOP _Pragma("clang loop vectorize(disable)")
#else
#define HVD_BENCHMARK_SCALAR __attribute__((optimize("no-tree-vectorize")))
#define HVD_BENCHMARK_SCALAR_LOOP
#endif

HVD_BENCHMARK_SCALAR void sum_bfloats_scalar(void* in, void* in_out, int* count, MPI_Datatype*) {
  auto* source = static_cast<const std::uint16_t*>(in);
  auto* destination = static_cast<std::uint16_t*>(in_out);
  HVD_BENCHMARK_SCALAR_LOOP
  for (int i = 0; i < *count; ++i) destination[i] = to_bfloat(from_bfloat(source[i]) + from_bfloat(destination[i]));
}

void sum_bfloats_compiled(void* in, void* in_out, int* count, MPI_Datatype*) {
  auto* __restrict source = static_cast<const std::uint16_t*>(in);
  auto* __restrict destination = static_cast<std::uint16_t*>(in_out);
  int n = *count;
  for (int i = 0; i < n; ++i) {
    float sum = from_bfloat(source[i]) + from_bfloat(destination[i]);
    auto bits = std::bit_cast<std::uint32_t>(sum);
    auto rounded = static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    destination[i] = sum != sum ? std::uint16_t{0x7fc0} : rounded;
  }
}

}  // namespace

SixteenBitSums::SixteenBitSums() {
  MPI_Type_contiguous(2, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  MPI_Op_create(&sum_halves, 1, &halves);
  MPI_Op_create(&sum_bfloats_scalar, 1, &bfloats_scalar);
  MPI_Op_create(&sum_bfloats_compiled, 1, &bfloats_compiled);
}

SixteenBitSums::~SixteenBitSums() {
  for (MPI_Op* operation : {&halves, &bfloats_scalar, &bfloats_compiled}) MPI_Op_free(operation);
  MPI_Type_free(&type);
}

}  // namespace hvd::benchmark
