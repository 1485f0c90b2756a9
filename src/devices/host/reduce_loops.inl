// The loop that all reductions use. It is compiled once per instruction set: Highway's foreach_target.h includes it
// several times, so there is no #pragma once. A Kit tells how one type is loaded into vectors, scaled, rounded and
// stored:
//   Kit::Stored           type of an element in memory
//   Kit::Factor           type of a factor
//   Kit::Wide             a step of one full vector of Stored
//   Kit::Step<n>          a step of n elements, n a power of two up to Kit::lanes
//   Kit::MaskedStep       a step of the first n <= Kit::lanes elements, where the CPU can load and store under a mask
// A step has `lanes`, a type Value, load, store, apply<Op>, scale and round (to a value that the type can hold).
#if defined(HVD_REDUCE_LOOPS) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_REDUCE_LOOPS
#undef HVD_REDUCE_LOOPS
#else
#define HVD_REDUCE_LOOPS
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "devices/host/host_kernels.hpp"

#undef HVD_UNROLL
#if HWY_TARGET == HWY_SCALAR
#define HVD_UNROLL
#else
#define HVD_UNROLL HWY_UNROLL(16)
#endif

#undef HVD_MASKED_STEPS
#if HWY_TARGET == HWY_AVX3
#define HVD_MASKED_STEPS 1
#else
#define HVD_MASKED_STEPS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace hvd::devices::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t line_bytes = 64;
constexpr std::size_t worth_prefetching = 32 << 10;

// Long arrays are processed in blocks of this many vectors. The baseline's vectors have one element; there the compiler
// makes real vectors of the loops over a block.
constexpr int vectors_per_block = HWY_TARGET == HWY_SCALAR ? 64 : 4;
template <class Kit>
constexpr std::size_t block_of = Kit::Wide::lanes* vectors_per_block;

// Loads and stores of parts of a register are done bytewise, so the pointers need not be aligned to the element.
template <class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const hn::TFromD<D>* from) {
  if constexpr (hn::MaxLanes(D{}) * sizeof(hn::TFromD<D>) < 16 && HWY_TARGET != HWY_SCALAR) {
    const hn::Repartition<std::uint8_t, D> bytes;
    return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from)));
  } else {
    return hn::LoadU(d, from);
  }
}

template <class D>
HWY_INLINE void store_lanes(hn::Vec<D> value, D d, hn::TFromD<D>* to) {
  if constexpr (hn::MaxLanes(D{}) * sizeof(hn::TFromD<D>) < 16 && HWY_TARGET != HWY_SCALAR) {
    const hn::Repartition<std::uint8_t, D> bytes;
    hn::StoreU(hn::BitCast(bytes, value), bytes, reinterpret_cast<std::uint8_t*>(to));
  } else {
    hn::StoreU(value, d, to);
  }
}

struct Sum {
  template <class V>
  static HWY_INLINE V apply(V left, V right) {
    return hn::Add(left, right);
  }
};

// There is no multiplication of bytes. The bytes at even places and those at odd places are multiplied as 16-bit
// numbers.
template <class V>
HWY_INLINE V multiply_bytes(V left, V right) {
  const hn::DFromV<V> d;
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::Set(d, static_cast<hn::LaneType<V>>(hn::GetLane(left) * hn::GetLane(right)));
  } else {
    const hn::Repartition<std::uint16_t, hn::DFromV<V>> d16;
    const auto a = hn::BitCast(d16, left), b = hn::BitCast(d16, right);
    const auto even = hn::And(hn::Mul(a, b), hn::Set(d16, 0xFF));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a), hn::ShiftRight<8>(b)));
    return hn::BitCast(d, hn::Or(even, odd));
  }
}

struct Product {
  template <class V>
  static HWY_INLINE V apply(V left, V right) {
    if constexpr (sizeof(hn::LaneType<V>) == 1) {
      return multiply_bytes(left, right);
    } else {
      return hn::Mul(left, right);
    }
  }
};

// Min and max of floats use comparisons, because in Highway's Min and Max the result for NaN and for zeros of different
// sign depends on the CPU. Here a NaN is taken if there is one, and of two equal numbers the left one.
template <class V, class M>
HWY_INLINE V right_if(M better, V left, V right) {
  return hn::IfThenElse(hn::Or(better, hn::IsNaN(right)), right, left);
}

struct Minimum {
  template <class V>
  static HWY_INLINE V apply(V left, V right) {
    if constexpr (hwy::IsFloat<hn::LaneType<V>>()) {
      return right_if(hn::Lt(right, left), left, right);
    } else {
      return hn::Min(left, right);
    }
  }
};

struct Maximum {
  template <class V>
  static HWY_INLINE V apply(V left, V right) {
    if constexpr (hwy::IsFloat<hn::LaneType<V>>()) {
      return right_if(hn::Lt(left, right), left, right);
    } else {
      return hn::Max(left, right);
    }
  }
};

enum class Scaling { none, post, both };

template <class Factor>
struct Factors {
  Factor pre;
  Factor post;
};

// A NaN becomes the standard NaN: round_upper_half() needs a lower half of zeros in every NaN.
template <class Factor>
HWY_INLINE Factor factor_from(double factor) {
  return factor == factor ? static_cast<Factor>(factor) : std::numeric_limits<Factor>::quiet_NaN();
}

template <class Stored>
struct Arrays {
  static constexpr int at_once = vectors_per_block;  // so each pointer is fetched only once for several vectors
  const void* const* sources;
  int source_count;
  void* const* destinations;
  int destination_count;

  HWY_INLINE const Stored* source(int k) const { return static_cast<const Stored*>(sources[k]); }
  HWY_INLINE Stored* destination(int k) const { return static_cast<Stored*>(destinations[k]); }
};

// Arrays whose numbers of sources and destinations are known at compile time. Their pointers stay in registers.
template <class Stored, int sources, int destinations>
struct FixedArrays {
  static constexpr int at_once = HWY_TARGET == HWY_SCALAR ? vectors_per_block : 1;
  static constexpr int source_count = sources;
  static constexpr int destination_count = destinations;
  const Stored* from[sources];
  Stored* to[destinations];

  explicit HWY_INLINE FixedArrays(const Arrays<Stored>& arrays) {
    for (int k = 0; k < sources; ++k) from[k] = arrays.source(k);
    for (int k = 0; k < destinations; ++k) to[k] = arrays.destination(k);
  }
  HWY_INLINE const Stored* source(int k) const { return from[k]; }
  HWY_INLINE Stored* destination(int k) const { return to[k]; }
};

// Reduces `unroll` steps at `index`. All elements are loaded before the first is stored, because a destination may be a
// source.
template <class Op, Scaling scaling, int unroll, class Step, class SomeArrays, class Factor>
HWY_INLINE void advance(const Step& step, const SomeArrays& arrays, Factors<Factor> factors, std::size_t index) {
  typename Step::Value values[unroll];
  HVD_UNROLL
  for (int u = 0; u < unroll; ++u) {
    values[u] = step.load(arrays.source(0) + index + static_cast<std::size_t>(u) * Step::lanes);
    if constexpr (scaling == Scaling::both) values[u] = step.round(step.scale(values[u], factors.pre));
  }
  for (int k = 1; k < arrays.source_count; ++k) {
    const auto* source = arrays.source(k) + index;
    HVD_UNROLL
    for (int u = 0; u < unroll; ++u) {
      auto next = step.load(source + static_cast<std::size_t>(u) * Step::lanes);
      if constexpr (scaling == Scaling::both) next = step.round(step.scale(next, factors.pre));
      values[u] = step.template apply<Op>(values[u], next);
    }
  }
  if constexpr (scaling != Scaling::none) {
    HVD_UNROLL
    for (int u = 0; u < unroll; ++u) values[u] = step.scale(values[u], factors.post);
  }
  for (int k = 0; k < arrays.destination_count; ++k) {
    auto* destination = arrays.destination(k) + index;
    HVD_UNROLL
    for (int u = 0; u < unroll; ++u) step.store(values[u], destination + static_cast<std::size_t>(u) * Step::lanes);
  }
}

// Handles fewer elements than fill a vector. It goes by halves, so that no byte outside the arrays is touched.
template <class Kit, class Op, Scaling scaling, std::size_t lanes>
HWY_INLINE void finish_by_halves(const Arrays<typename Kit::Stored>& arrays, Factors<typename Kit::Factor> factors,
                                 std::size_t index, std::size_t left) {
  if constexpr (lanes >= 1) {
    if ((left & lanes) != 0) {
      advance<Op, scaling, 1>(typename Kit::template Step<lanes>{}, arrays, factors, index);
      index += lanes;
    }
    finish_by_halves<Kit, Op, scaling, lanes / 2>(arrays, factors, index, left);
  }
}

// Handles the elements from `index` to `end` in steps of one vector. Used for short arrays and for the ends of long
// ones.
template <class Kit, class Op, Scaling scaling>
HWY_NOINLINE void reduce_few(const void* const* sources, int source_count, void* const* destinations,
                             int destination_count, std::size_t end, Factors<typename Kit::Factor> factors,
                             std::size_t index) {
  const Arrays<typename Kit::Stored> arrays{sources, source_count, destinations, destination_count};
  for (; index + Kit::lanes <= end; index += Kit::lanes) {
    advance<Op, scaling, 1>(typename Kit::template Step<Kit::lanes>{}, arrays, factors, index);
  }
#if HVD_MASKED_STEPS
  if (index < end) advance<Op, scaling, 1>(typename Kit::MaskedStep(end - index), arrays, factors, index);
#else
  finish_by_halves<Kit, Op, scaling, Kit::lanes / 2>(arrays, factors, index, end - index);
#endif
}

// Returns one bit for each of the first destinations, set if the destination is not a source. Its cache lines may be in
// another core's cache, so they are prefetched for writing. (Sources are fetched when they are read. Prefetching them
// as well was measured to cost a fifth.)
template <class Stored>
HWY_INLINE std::uint32_t fresh_destinations(const Arrays<Stored>& arrays) {
  std::uint32_t fresh = 0;
  for (int d = 0; d < arrays.destination_count && d < 32; ++d) {
    bool is_source = false;
    for (int s = 0; s < arrays.source_count; ++s) is_source |= arrays.sources[s] == arrays.destinations[d];
    if (!is_source) fresh |= std::uint32_t{1} << d;
  }
  return fresh;
}

// Handles complete blocks from `index` on. Returns the index after the last one.
template <class Kit, class Op, Scaling scaling, class SomeArrays>
HWY_INLINE std::size_t reduce_blocks(const SomeArrays& arrays, Factors<typename Kit::Factor> factors, std::size_t index,
                                     std::size_t count, std::uint32_t fresh) {
  constexpr std::size_t ahead = 1024, block_bytes = block_of<Kit> * sizeof(typename Kit::Stored);
  for (; index + block_of<Kit> <= count; index += block_of<Kit>) {
    for (int d = 0; d < arrays.destination_count && d < 32 && fresh >> d != 0; ++d) {
      if ((fresh >> d & 1) == 0) continue;
      const char* next = reinterpret_cast<const char*>(arrays.destination(d) + index) + ahead;
      for (std::size_t byte = 0; byte < block_bytes; byte += line_bytes) __builtin_prefetch(next + byte, 1);
    }
    for (std::size_t done = 0; done < block_of<Kit>; done += SomeArrays::at_once * Kit::Wide::lanes) {
      advance<Op, scaling, SomeArrays::at_once>(typename Kit::Wide{}, arrays, factors, index + done);
    }
  }
  return index;
}

template <class Kit, class Op, Scaling scaling>
HWY_NOINLINE void reduce_many(const void* const* sources, int source_count, void* const* destinations,
                              int destination_count, std::size_t count, Factors<typename Kit::Factor> factors) {
  using Stored = typename Kit::Stored;
  const Arrays<Stored> arrays{sources, source_count, destinations, destination_count};
  // Stores that cross the border of a cache line cost the most, so the first destination is aligned to a line.
  std::size_t index = (0 - reinterpret_cast<std::uintptr_t>(destinations[0])) % line_bytes / sizeof(Stored);
  if (index != 0) {
    reduce_few<Kit, Op, scaling>(sources, source_count, destinations, destination_count, index, factors, 0);
  }
  const std::uint32_t fresh = (count - index) * sizeof(Stored) < worth_prefetching ? 0 : fresh_destinations(arrays);
  const auto reduce_blocks_of = [&](const auto& some_arrays) HWY_ATTR {
    index = reduce_blocks<Kit, Op, scaling>(some_arrays, factors, index, count, fresh);
  };
  // The most frequent numbers of sources and destinations have loops of their own.
  const int counts = source_count < 10 && destination_count < 10 ? source_count * 10 + destination_count : 0;
  // NOLINTNEXTLINE(bugprone-branch-clone): an `else` of `if constexpr` compiles no loop that is not asked for.
  if constexpr (!std::is_same_v<Op, Sum> || scaling == Scaling::both) {
    reduce_blocks_of(arrays);
  } else if constexpr (std::is_same_v<Stored, float>) {
    switch (counts) {
      case 21: reduce_blocks_of(FixedArrays<Stored, 2, 1>(arrays)); break;
      case 22: reduce_blocks_of(FixedArrays<Stored, 2, 2>(arrays)); break;
      case 41: reduce_blocks_of(FixedArrays<Stored, 4, 1>(arrays)); break;
      case 44: reduce_blocks_of(FixedArrays<Stored, 4, 4>(arrays)); break;
      default: reduce_blocks_of(arrays);
    }
  } else if (counts == 21) {
    reduce_blocks_of(FixedArrays<Stored, 2, 1>(arrays));
  } else {
    reduce_blocks_of(arrays);
  }
  reduce_few<Kit, Op, scaling>(sources, source_count, destinations, destination_count, count, factors, index);
}

template <class Kit, class Op, Scaling scaling>
HWY_INLINE void reduce(const void* const* sources, int source_count, void* const* destinations, int destination_count,
                       std::size_t count, Factors<typename Kit::Factor> factors) {
  if (count < block_of<Kit> + line_bytes / sizeof(typename Kit::Stored)) {
    reduce_few<Kit, Op, scaling>(sources, source_count, destinations, destination_count, count, factors, 0);
  } else {
    reduce_many<Kit, Op, scaling>(sources, source_count, destinations, destination_count, count, factors);
  }
}

// Chooses the loop for the factors. Only sums have a separate loop for a postscale without a prescale, because an
// average is such a sum.
template <class Kit, class Op>
HWY_INLINE void reduce_scaled_or_not(const void* const* sources, int source_count, void* const* destinations,
                                     int destination_count, std::size_t count, Scale scale) {
  using Factor = typename Kit::Factor;
  if (scale.pre == 1.0 && scale.post == 1.0) {
    reduce<Kit, Op, Scaling::none>(sources, source_count, destinations, destination_count, count, {});
    return;
  }
  const Factors<Factor> factors{factor_from<Factor>(scale.pre), factor_from<Factor>(scale.post)};
  if constexpr (std::is_same_v<Op, Sum>) {
    if (scale.pre == 1.0) {
      reduce<Kit, Op, Scaling::post>(sources, source_count, destinations, destination_count, count, factors);
      return;
    }
  }
  reduce<Kit, Op, Scaling::both>(sources, source_count, destinations, destination_count, count, factors);
}

// A step for a type that needs no conversion.
template <class D>
struct PlainStep {
  using T = hn::TFromD<D>;
  using Value = hn::Vec<D>;
  static constexpr std::size_t lanes = hn::MaxLanes(D{});

  HWY_INLINE Value load(const T* from) const { return load_lanes(D{}, from); }
  HWY_INLINE void store(Value value, T* to) const { store_lanes(value, D{}, to); }
  template <class Op>
  HWY_INLINE Value apply(Value left, Value right) const {
    return Op::apply(left, right);
  }
  HWY_INLINE Value scale(Value value, T factor) const { return hn::Mul(value, hn::Set(D{}, factor)); }
  HWY_INLINE Value round(Value value) const { return value; }
};

#if HVD_MASKED_STEPS
template <class D>
struct MaskedPlainStep : PlainStep<D> {
  using typename PlainStep<D>::T;
  using typename PlainStep<D>::Value;
  hn::Mask<D> mask;

  explicit HWY_INLINE MaskedPlainStep(std::size_t count) : mask(hn::FirstN(D{}, count)) {}
  HWY_INLINE Value load(const T* from) const { return hn::MaskedLoad(mask, D{}, from); }
  HWY_INLINE void store(Value value, T* to) const { hn::BlendedStore(value, mask, D{}, to); }
};
#endif

template <class T>
struct PlainKit {
  using Stored = T;
  using Factor = T;
  using D = hn::ScalableTag<T>;
  static constexpr std::size_t lanes = hn::MaxLanes(D{});
  using Wide = PlainStep<D>;
  template <std::size_t n>
  using Step = PlainStep<hn::CappedTag<T, n>>;
#if HVD_MASKED_STEPS
  using MaskedStep = MaskedPlainStep<D>;
#endif
};

}  // namespace hvd::devices::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HVD_REDUCE_LOOPS
