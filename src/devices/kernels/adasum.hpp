#pragma once
// Adasum's sums and combination of a list of pairs. The sums take two launches: sums_of_threads, then sums_of_pairs
// with one block for each pair. All is computed in double. The order in which products are added depends only on the
// number of elements and their type.
#include "devices/kernels/lists.hpp"
#include "devices/kernels/memory.hpp"
#include "devices/kernels/move.hpp"
#include "devices/kernels/numbers.hpp"
#include "devices/kernels/tiles.hpp"

namespace hvd::devices::cuda {

HVD_DEVICE double load_double(const double* from) {
  return __builtin_bit_cast(double, load_word(from));
}
HVD_DEVICE void store_double(double* to, double value) {
  store(to, __builtin_bit_cast(std::uint64_t, value));
}

HVD_DEVICE void add_product(AdasumSums& sums, double left, double right) {
  sums.dot += left * right;
  sums.left += left * left;
  sums.right += right * right;
}

// Vector `index` of each tensor, or what is left of it.
template <typename T, bool is_aligned>
HVD_DEVICE void add_elements(AdasumSums& sums, const SumsEntry& pair, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t i = begin; i < end; ++i) {
    const T left = load_element<T, is_aligned>(advanced(pair.left, i * sizeof(T)));
    const T right = load_element<T, is_aligned>(advanced(pair.right, i * sizeof(T)));
    add_product(sums, widen(left), widen(right));
  }
}

// The thread of all threads of a pair: it adds the vectors `first`, first + step, …
template <typename T>
HVD_DEVICE AdasumSums sums_of_thread(const SumsEntry& pair, std::uint64_t first, std::uint64_t step) {
  constexpr unsigned elements = vector_bytes / sizeof(T);
  constexpr unsigned slots = 4;
  AdasumSums sums = {0, 0, 0};
  const bool are_vectors = (address_of(pair.left) | address_of(pair.right)) % vector_bytes == 0;
  const bool are_aligned = (address_of(pair.left) | address_of(pair.right)) % sizeof(T) == 0;
  const std::uint64_t vectors = pair.count / elements;
  std::uint64_t index = first;
  const auto add_vectors = [&](const Vector& left, const Vector& right) {
    HVD_UNROLL
    for (unsigned k = 0; k < elements; ++k)
      add_product(sums, widen(element_of<T>(&left, k)), widen(element_of<T>(&right, k)));
  };
  if (are_vectors) {
    for (; index + (slots - 1) * step < vectors; index += slots * step) {
      Vector left[slots], right[slots];
      HVD_UNROLL
      for (unsigned slot = 0; slot < slots; ++slot) {
        left[slot] = load16(advanced(pair.left, (index + slot * step) * vector_bytes));
        right[slot] = load16(advanced(pair.right, (index + slot * step) * vector_bytes));
      }
      HVD_UNROLL
      for (unsigned slot = 0; slot < slots; ++slot) add_vectors(left[slot], right[slot]);
    }
    for (; index < vectors; index += step) {
      const std::uint64_t byte = index * vector_bytes;
      add_vectors(load16(advanced(pair.left, byte)), load16(advanced(pair.right, byte)));
    }
  }
  for (; index * elements < pair.count; index += step) {
    const std::uint64_t begin = index * elements, end = least(begin + elements, pair.count);
    if (are_aligned) {
      add_elements<T, true>(sums, pair, begin, end);
    } else {
      add_elements<T, false>(sums, pair, begin, end);
    }
  }
  return sums;
}

// Sum k (0 to 2) of a thread.
HVD_DEVICE double* partial_sum(const SumsList& list, std::uint32_t block, unsigned k, std::uint32_t thread) {
  return list.partial + (std::uint64_t{block} * 3 + k) * threads_per_block + thread;
}

template <typename T>
HVD_DEVICE void sums_of_threads(const SumsList& list, Place place) {
  const auto first_block_of = [](const SumsList& in, std::uint32_t index) { return entry_at(in, index).first_block; };
  const SumsEntry pair = entry_at(list, last_entry_until(list, place.block, first_block_of));
  const std::uint64_t thread = std::uint64_t{place.block - pair.first_block} * place.threads + place.thread;
  const AdasumSums sums = sums_of_thread<T>(pair, thread, std::uint64_t{pair.blocks} * place.threads);
  store_double(partial_sum(list, place.block, 0, place.thread), sums.dot);
  store_double(partial_sum(list, place.block, 1, place.thread), sums.left);
  store_double(partial_sum(list, place.block, 2, place.thread), sums.right);
}

// Before the barrier, each thread adds up the sums of its number in all blocks of the pair.
HVD_DEVICE void sums_of_pairs_by_thread(const SumsList& list, Place place) {
  const SumsEntry pair = entry_at(list, place.block);
  if (pair.blocks < 2) return;
  for (unsigned k = 0; k < 3; ++k) {
    double sum = 0;
    for (std::uint32_t block = 0; block < pair.blocks; ++block)
      sum += load_double(partial_sum(list, pair.first_block + block, k, place.thread));
    store_double(partial_sum(list, pair.first_block, k, place.thread), sum);
  }
}

// After it, three threads add up the sums of all threads.
HVD_DEVICE void sums_of_pairs(const SumsList& list, Place place) {
  constexpr unsigned parts = 8;
  if (place.thread >= 3) return;
  const SumsEntry pair = entry_at(list, place.block);
  double sum[parts] = {};
  for (std::uint32_t thread = 0; pair.blocks > 0 && thread < threads_per_block; thread += parts) {
    HVD_UNROLL
    for (unsigned part = 0; part < parts; ++part)
      sum[part] += load_double(partial_sum(list, pair.first_block, place.thread, thread + part));
  }
  const double total = ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
  AdasumSums* sums = list.sums + place.block;
  store_double(place.thread == 0 ? &sums->dot : place.thread == 1 ? &sums->left : &sums->right, total);
}

// As in collectives/adasum: a vector whose square vanishes has the weight 1. 0x1p-511 is the root of the least normal
// double.
HVD_DEVICE double adasum_weight(double dot, double square) {
  return square < 0x1p-511 ? 1.0 : 1.0 - dot / (2 * square);
}

// Halves are rounded to float first, as devices/host does.
template <typename T>
HVD_DEVICE T weighted_sum(T left, T right, const AdasumSums& weights) {
  const double sum =
      weights.left * static_cast<double>(widen(left)) + weights.right * static_cast<double>(widen(right));
  T result;
  if constexpr (sizeof(T) == 8) {
    narrow(sum, result);
  } else {
    narrow(static_cast<float>(sum), result);
  }
  return result;
}

template <typename T, bool is_aligned>
HVD_DEVICE void combine_elements(const CombinationEntry& pair, std::uint64_t begin, std::uint64_t end,
                                 const AdasumSums& weights, Place place) {
  visit_share(begin, end, place, [&](std::uint64_t i) {
    const T left = load_element<T, is_aligned>(advanced(pair.left, i * sizeof(T)));
    const T right = load_element<T, is_aligned>(advanced(pair.right, i * sizeof(T)));
    store_element<is_aligned>(advanced(pair.to, i * sizeof(T)), weighted_sum(left, right, weights));
  });
}

template <typename T>
HVD_DEVICE void combine_vectors(const CombinationEntry& pair, std::uint64_t vectors, const AdasumSums& weights,
                                Place place) {
  constexpr unsigned slots = 2, elements = vector_bytes / sizeof(T);
  Vector left[slots], right[slots];
  move_share<slots>(
      vectors, place,
      [&](unsigned slot, std::uint64_t i) {
        left[slot] = load16(advanced(pair.left, i * vector_bytes));
        right[slot] = load16(advanced(pair.right, i * vector_bytes));
      },
      [&](unsigned slot, std::uint64_t i) {
        Vector sum = {};
        HVD_UNROLL
        for (unsigned k = 0; k < elements; ++k)
          put_element(&sum, k, weighted_sum(element_of<T>(&left[slot], k), element_of<T>(&right[slot], k), weights));
        store16(advanced(pair.to, i * vector_bytes), sum);
      });
}

template <typename T>
HVD_DEVICE void combine(const CombinationList& list, Place place) {
  visit_runs(list, tile_elements(sizeof(T)), place,
             [&](CombinationEntry pair, std::uint32_t index, std::uint64_t begin, std::uint64_t count) {
               const AdasumSums* sums = list.sums + index;
               const double dot = load_double(&sums->dot);
               const AdasumSums weights = {0, adasum_weight(dot, load_double(&sums->left)) * list.scale,
                                           adasum_weight(dot, load_double(&sums->right)) * list.scale};
               pair.left = advanced(pair.left, begin * sizeof(T));
               pair.right = advanced(pair.right, begin * sizeof(T));
               pair.to = advanced(pair.to, begin * sizeof(T));
               const std::uint64_t all = address_of(pair.left) | address_of(pair.right) | address_of(pair.to);
               if (all % sizeof(T) != 0) {
                 combine_elements<T, false>(pair, 0, count, weights, place);
                 return;
               }
               const std::uint64_t vectors = all % vector_bytes == 0 ? count * sizeof(T) / vector_bytes : 0;
               combine_vectors<T>(pair, vectors, weights, place);
               combine_elements<T, true>(pair, vectors * vector_bytes / sizeof(T), count, weights, place);
             });
}

}  // namespace hvd::devices::cuda
