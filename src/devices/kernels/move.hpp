#pragma once
// Moves the elements of a list: copies them as bytes, converts and scales them, or writes zeros. A block deals with one
// run of elements after the other; in a run, thread t takes the vectors t, t + threads, …
#include "devices/kernels/lists.hpp"
#include "devices/kernels/memory.hpp"
#include "devices/kernels/numbers.hpp"
#include "devices/kernels/tiles.hpp"

namespace hvd::devices::cuda {

// A thread loads about this much before it waits for the first of it. More does not fit into its registers.
inline constexpr unsigned bytes_under_way = 64;

// Calls visit(index) for the thread's share of [begin, end).
template <typename Visit>
HVD_DEVICE void visit_share(std::uint64_t begin, std::uint64_t end, Place place, Visit visit) {
  for (std::uint64_t i = begin + place.thread; i < end; i += place.threads) visit(i);
}

// Calls load(slot, index) and then store(slot, index) for the thread's share of [0, end). It loads `slots` times before
// it stores. Slots must become constants, so these loops are unrolled.
template <unsigned slots, typename Load, typename Store>
HVD_DEVICE void move_share(std::uint64_t end, Place place, Load load_slot, Store store_slot) {
  std::uint64_t i = place.thread;
  const std::uint64_t stride = place.threads;
  if constexpr (slots > 1) {
    for (; i + (slots - 1) * stride < end; i += slots * stride) {
      HVD_UNROLL
      for (unsigned slot = 0; slot < slots; ++slot) load_slot(slot, i + slot * stride);
      HVD_UNROLL
      for (unsigned slot = 0; slot < slots; ++slot) store_slot(slot, i + slot * stride);
    }
  }
  for (; i < end; i += stride) {
    load_slot(0, i);
    store_slot(0, i);
  }
}

HVD_DEVICE std::uint64_t bytes_to_vector(const void* pointer) {
  return (0 - address_of(pointer)) % vector_bytes;
}
HVD_DEVICE std::uint64_t least(std::uint64_t left, std::uint64_t right) {
  return left < right ? left : right;
}

// Writes a pattern of eight bytes, from its first byte on, again and again.
HVD_DEVICE void fill(void* to, std::uint64_t bytes, std::uint64_t pattern, Place place) {
  const std::uint64_t head = least(bytes_to_vector(to), bytes), vectors = (bytes - head) / vector_bytes;
  const std::uint64_t body_end = head + vectors * vector_bytes;
  const auto put_byte = [&](std::uint64_t i) {
    store(advanced(to, i), static_cast<std::uint8_t>(pattern >> 8 * (i % 8)));
  };
  const std::uint64_t turn = 8 * (head % 8);
  const std::uint64_t turned = turn == 0 ? pattern : pattern >> turn | pattern << (64 - turn);
  const auto low = static_cast<std::uint32_t>(turned), high = static_cast<std::uint32_t>(turned >> 32);
  const Vector vector = {{low, high, low, high}};
  visit_share(0, head, place, put_byte);
  visit_share(0, vectors, place, [&](std::uint64_t i) { store16(advanced(to, head + i * vector_bytes), vector); });
  visit_share(body_end, bytes, place, put_byte);
}

HVD_DEVICE void copy_byte(const void* from, void* to, std::uint64_t index) {
  std::uint8_t byte;
  load(advanced(from, index), byte);
  store(advanced(to, index), byte);
}

// Copies where `from` and `to` are as far from a vector's begin.
HVD_DEVICE void copy_in_step(const void* from, void* to, std::uint64_t bytes, Place place) {
  constexpr unsigned slots = bytes_under_way / vector_bytes;
  const std::uint64_t head = least(bytes_to_vector(to), bytes), vectors = (bytes - head) / vector_bytes;
  visit_share(0, head, place, [&](std::uint64_t i) { copy_byte(from, to, i); });
  Vector vector[slots];
  move_share<slots>(
      vectors, place,
      [&](unsigned slot, std::uint64_t i) { vector[slot] = load16(advanced(from, head + i * vector_bytes)); },
      [&](unsigned slot, std::uint64_t i) { store16(advanced(to, head + i * vector_bytes), vector[slot]); });
  visit_share(head + vectors * vector_bytes, bytes, place, [&](std::uint64_t i) { copy_byte(from, to, i); });
}

// Copies where they are not. Whole vectors are stored; each is put together from five words, which lie `offset` bytes
// before it. No byte outside of [from, from + bytes) is read.
HVD_DEVICE void copy_out_of_step(const void* from, void* to, std::uint64_t bytes, Place place) {
  constexpr unsigned slots = 2;
  std::uint64_t head = bytes_to_vector(to);
  const std::uint64_t offset = (address_of(from) + head) % 4;
  if (head < offset) head += vector_bytes;
  const std::uint64_t read = head - offset;  // where the words begin
  const std::uint64_t vectors = bytes < read + 20 ? 0 : (bytes - read - 4) / vector_bytes;
  if (vectors == 0) head = bytes;
  visit_share(0, head, place, [&](std::uint64_t i) { copy_byte(from, to, i); });
  std::uint32_t word[slots][5];
  move_share<slots>(
      vectors, place,
      [&](unsigned slot, std::uint64_t i) {
        HVD_UNROLL
        for (unsigned k = 0; k < 5; ++k) load(advanced(from, read + i * vector_bytes + 4 * k), word[slot][k]);
      },
      [&](unsigned slot, std::uint64_t i) {
        Vector vector;
        HVD_UNROLL
        for (unsigned k = 0; k < 4; ++k) {
          const std::uint64_t pair = std::uint64_t{word[slot][k + 1]} << 32 | word[slot][k];
          vector.word[k] = static_cast<std::uint32_t>(pair >> 8 * offset);
        }
        store16(advanced(to, head + i * vector_bytes), vector);
      });
  visit_share(head + vectors * vector_bytes, bytes, place, [&](std::uint64_t i) { copy_byte(from, to, i); });
}

// The treatment of what is copied as it is. Its elements are bytes.
struct Copy {
  using Source = std::uint8_t;
  using Target = std::uint8_t;
  static constexpr unsigned most_slots = 4;
};

// Elements one by one.
template <typename Treatment, bool is_aligned>
HVD_DEVICE void treat_elements(const void* from, void* to, std::uint64_t begin, std::uint64_t end, double scale,
                               Place place) {
  using Source = typename Treatment::Source;
  using Target = typename Treatment::Target;
  constexpr unsigned slots = is_aligned ? Treatment::most_slots : 1;
  from = advanced(from, begin * sizeof(Source));
  to = advanced(to, begin * sizeof(Target));
  Source value[slots];
  move_share<slots>(
      end - begin, place,
      [&](unsigned slot, std::uint64_t i) {
        value[slot] = load_element<Source, is_aligned>(advanced(from, i * sizeof(Source)));
      },
      [&](unsigned slot, std::uint64_t i) {
        store_element<is_aligned>(advanced(to, i * sizeof(Target)), Treatment::apply(value[slot], scale));
      });
}

// A step of a thread is one vector of the narrower type, and one or more of the other.
template <typename Treatment>
struct Steps {
  using Source = typename Treatment::Source;
  using Target = typename Treatment::Target;
  static constexpr unsigned narrower = sizeof(Source) < sizeof(Target) ? sizeof(Source) : sizeof(Target);
  static constexpr unsigned elements = vector_bytes / narrower;
  static constexpr unsigned loads = elements * sizeof(Source) / vector_bytes;
  static constexpr unsigned stores = elements * sizeof(Target) / vector_bytes;
  static constexpr unsigned fitting = 2 * bytes_under_way / vector_bytes / (loads + stores);
  static constexpr unsigned slots = fitting < 1 ? 1 : fitting < Treatment::most_slots ? fitting : Treatment::most_slots;

  // Returns the number of elements before the first at which both sides begin a vector, or all if there is none.
  static HVD_DEVICE std::uint64_t elements_before(const void* from, const void* to, std::uint64_t count) {
    if (address_of(from) % sizeof(Source) != 0 || address_of(to) % sizeof(Target) != 0) return count;
    const std::uint64_t before = bytes_to_vector(sizeof(Source) == narrower ? from : to) / narrower;
    const bool meet = (address_of(from) + before * sizeof(Source)) % vector_bytes == 0 &&
                      (address_of(to) + before * sizeof(Target)) % vector_bytes == 0;
    return meet && before < count ? before : count;
  }
};

template <typename Treatment>
HVD_DEVICE void treat_run(const void* from, void* to, std::uint64_t count, double scale, Place place) {
  using Step = Steps<Treatment>;
  using Source = typename Treatment::Source;
  using Target = typename Treatment::Target;
  if (address_of(from) % sizeof(Source) != 0 || address_of(to) % sizeof(Target) != 0) {
    treat_elements<Treatment, false>(from, to, 0, count, scale, place);
    return;
  }
  const std::uint64_t head = Step::elements_before(from, to, count), steps = (count - head) / Step::elements;
  treat_elements<Treatment, true>(from, to, 0, head, scale, place);
  const void* source = advanced(from, head * sizeof(Source));
  void* target = advanced(to, head * sizeof(Target));
  Vector taken[Step::slots][Step::loads];
  move_share<Step::slots>(
      steps, place,
      [&](unsigned slot, std::uint64_t i) {
        HVD_UNROLL
        for (unsigned k = 0; k < Step::loads; ++k)
          taken[slot][k] = load16(advanced(source, (i * Step::loads + k) * vector_bytes));
      },
      [&](unsigned slot, std::uint64_t i) {
        Vector made[Step::stores] = {};
        HVD_UNROLL
        for (unsigned k = 0; k < Step::elements; ++k)
          put_element(made, k, Treatment::apply(element_of<Source>(taken[slot], k), scale));
        HVD_UNROLL
        for (unsigned k = 0; k < Step::stores; ++k)
          store16(advanced(target, (i * Step::stores + k) * vector_bytes), made[k]);
      });
  treat_elements<Treatment, true>(from, to, head + steps * Step::elements, count, scale, place);
}
template <>
HVD_DEVICE void treat_run<Copy>(const void* from, void* to, std::uint64_t bytes, double, Place place) {
  if ((address_of(from) - address_of(to)) % vector_bytes == 0) {
    copy_in_step(from, to, bytes, place);
  } else {
    copy_out_of_step(from, to, bytes, place);
  }
}

// The kernel.
template <typename Treatment>
HVD_DEVICE void move(const MoveList& list, Place place) {
  using Source = typename Treatment::Source;
  using Target = typename Treatment::Target;
  visit_runs(list, tile_elements(Steps<Treatment>::narrower), place,
             [&](const MoveEntry& entry, std::uint32_t, std::uint64_t begin, std::uint64_t count) {
               void* to = advanced(entry.to, begin * sizeof(Target));
               if (entry.from == nullptr) {
                 fill(to, count * sizeof(Target), 0, place);
               } else {
                 treat_run<Treatment>(advanced(entry.from, begin * sizeof(Source)), to, count, list.scale, place);
               }
             });
}

// The kernel that looks at the word of an abort, and then writes NaN to all of a list. It is one warp. The looks of
// several warps at memory of the host come one after another, 2 us each: with one for each warp of a move, a tensor of
// 64 MB took 35 ms more (H200).
HVD_DEVICE void poison(const MoveList& list, Place place) {
  if (place.block > 0 || place.thread >= threads_of_poison || load_word_of_the_host(list.aborted) == 0) return;
  place.blocks = 1;
  place.threads = threads_of_poison;
  visit_runs(list, list.elements_of_tile, place,
             [&](const MoveEntry& entry, std::uint32_t, std::uint64_t begin, std::uint64_t count) {
               // Runs begin at multiples of eight bytes, so the pattern does, too.
               fill(advanced(entry.to, begin * list.target_bytes), count * list.target_bytes, list.nan, place);
             });
}

}  // namespace hvd::devices::cuda
