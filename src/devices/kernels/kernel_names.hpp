#pragma once
// All kernels: HVD_CUDA_KERNELS(KERNEL, KERNEL_WITH_BARRIER) has KERNEL(name, parameters, function) for each, or
// KERNEL_WITH_BARRIER(name, parameters, function before the barrier, function after it). Every kernel has one struct of
// lists.hpp as its only parameter, is launched with threads_per_block threads, and is called hvd_NAME in the image.
#include <cstddef>
#include <cstdint>

#include "devices/kernels/lists.hpp"

// clang-format off
#define HVD_CUDA_KERNELS(KERNEL, KERNEL_WITH_BARRIER)                              \
  KERNEL(move_bytes, MoveList, (move<Copy>))                                       \
  KERNEL(poison, MoveList, poison)                                                 \
  KERNEL(move_f16_f16, MoveList, (move<Convert<F16, F16>>))                        \
  KERNEL(move_f16_bf16, MoveList, (move<Convert<F16, BF16>>))                      \
  KERNEL(move_f16_f32, MoveList, (move<Convert<F16, float>>))                      \
  KERNEL(move_f16_f64, MoveList, (move<Convert<F16, double>>))                     \
  KERNEL(move_bf16_f16, MoveList, (move<Convert<BF16, F16>>))                      \
  KERNEL(move_bf16_bf16, MoveList, (move<Convert<BF16, BF16>>))                    \
  KERNEL(move_bf16_f32, MoveList, (move<Convert<BF16, float>>))                    \
  KERNEL(move_bf16_f64, MoveList, (move<Convert<BF16, double>>))                   \
  KERNEL(move_f32_f16, MoveList, (move<Convert<float, F16>>))                      \
  KERNEL(move_f32_bf16, MoveList, (move<Convert<float, BF16>>))                    \
  KERNEL(move_f32_f32, MoveList, (move<Convert<float, float>>))                    \
  KERNEL(move_f32_f64, MoveList, (move<Convert<float, double>>))                   \
  KERNEL(move_f64_f16, MoveList, (move<Convert<double, F16>>))                     \
  KERNEL(move_f64_bf16, MoveList, (move<Convert<double, BF16>>))                   \
  KERNEL(move_f64_f32, MoveList, (move<Convert<double, float>>))                   \
  KERNEL(move_f64_f64, MoveList, (move<Convert<double, double>>))                  \
  KERNEL(scale_u8, MoveList, (move<ScaleInteger<std::uint8_t>>))                   \
  KERNEL(scale_i8, MoveList, (move<ScaleInteger<std::int8_t>>))                    \
  KERNEL(scale_u16, MoveList, (move<ScaleInteger<std::uint16_t>>))                 \
  KERNEL(scale_i16, MoveList, (move<ScaleInteger<std::int16_t>>))                  \
  KERNEL(scale_i32, MoveList, (move<ScaleInteger<std::int32_t>>))                  \
  KERNEL(scale_i64, MoveList, (move<ScaleInteger<std::int64_t>>))                  \
  KERNEL(scale_u32, MoveList, (move<ScaleInteger<std::uint32_t>>))                 \
  KERNEL(scale_u64, MoveList, (move<ScaleInteger<std::uint64_t>>))                 \
  KERNEL(adasum_sums_f16, SumsList, (sums_of_threads<F16>))                        \
  KERNEL(adasum_sums_bf16, SumsList, (sums_of_threads<BF16>))                      \
  KERNEL(adasum_sums_f32, SumsList, (sums_of_threads<float>))                      \
  KERNEL(adasum_sums_f64, SumsList, (sums_of_threads<double>))                     \
  KERNEL_WITH_BARRIER(adasum_sums, SumsList, sums_of_pairs_by_thread, sums_of_pairs) \
  KERNEL(adasum_combine_f16, CombinationList, (combine<F16>))                      \
  KERNEL(adasum_combine_bf16, CombinationList, (combine<BF16>))                    \
  KERNEL(adasum_combine_f32, CombinationList, (combine<float>))                    \
  KERNEL(adasum_combine_f64, CombinationList, (combine<double>))                   \
  KERNEL(signal, SignalList, (signal_host))
// clang-format on

namespace hvd::devices::cuda {

#define HVD_NAME(name, ...) name,
enum class Kernel : std::uint8_t { HVD_CUDA_KERNELS(HVD_NAME, HVD_NAME) };
#undef HVD_NAME

struct KernelFacts {
  const char* name;  // in the image
  std::size_t parameter_bytes;
};
#define HVD_FACTS(name, parameters, ...) {"hvd_" #name, sizeof(parameters)},
inline constexpr KernelFacts kernel_facts[] = {HVD_CUDA_KERNELS(HVD_FACTS, HVD_FACTS)};
#undef HVD_FACTS

constexpr const KernelFacts& facts_of(Kernel kernel) noexcept {
  return kernel_facts[static_cast<std::size_t>(kernel)];
}

}  // namespace hvd::devices::cuda
