// The loop all reductions share, compiled once per instruction set (Highway's foreach_target.h includes it again and
// again, hence no #pragma once). A Kit says how one type is loaded into vectors, scaled, rounded and stored:
//   Kit::Stored           type of an element in memory
//   Kit::Factor           type of a factor
//   Kit::Wide             a step of one full vector of Stored
//   Kit::Step<n>          a step of n elements, n a power of two up to Kit::lanes
//   Kit::MaskedStep       a step of the first n <= Kit::lanes elements, where the CPU can load and store under a mask
// A step has `lanes`, a type Value, load, store, apply<Op>, scale and round (to what the type can hold).
#if defined(HVD_REDUCE_LOOPS) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_REDUCE_LOOPS
#undef HVD_REDUCE_LOOPS
#else
#define HVD_REDUCE_LOOPS
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "devices/host_kernels.hpp"

#undef HVD_MASKED_STEPS
#if HWY_TARGET == HWY_AVX3
#define HVD_MASKED_STEPS 1
#else
#define HVD_MASKED_STEPS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace hvd::devices::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads and stores of parts of a register go by bytes: the pointers need not be aligned to the element.
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

// Bytes have no multiplication of their own: those at even and at odd places are multiplied as 16-bit numbers.
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

// Of floats by comparison, because Highway's Min and Max treat NaN and zeros of either sign as the CPU likes. Here a
// NaN wins, and of two equal numbers the left one.
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

// The arguments of a kernel; a count of 0 in the template arguments means "as many as there are at run time".
template <class Stored, int fixed_sources, int fixed_destinations>
struct Arrays {
  const void* const* sources;
  int source_count;
  void* const* destinations;
  int destination_count;

  HWY_INLINE int last_source() const { return fixed_sources != 0 ? fixed_sources : source_count; }
  HWY_INLINE int last_destination() const { return fixed_destinations != 0 ? fixed_destinations : destination_count; }
  HWY_INLINE const Stored* source(int k) const { return static_cast<const Stored*>(sources[k]); }
  HWY_INLINE Stored* destination(int k) const { return static_cast<Stored*>(destinations[k]); }
};

// Reduces `unroll` steps' worth of elements at `index`. All are loaded before the first is stored: a destination may be
// a source.
template <class Op, Scaling scaling, int unroll, class Step, class Arrays, class Factor>
HWY_INLINE void advance(const Step& step, const Arrays& arrays, Factors<Factor> factors, std::size_t index) {
  typename Step::Value values[unroll];
  HWY_UNROLL(16)
  for (int u = 0; u < unroll; ++u) {
    values[u] = step.load(arrays.source(0) + index + static_cast<std::size_t>(u) * Step::lanes);
    if constexpr (scaling == Scaling::both) values[u] = step.round(step.scale(values[u], factors.pre));
  }
  for (int k = 1; k < arrays.last_source(); ++k) {
    const auto* source = arrays.source(k) + index;
    HWY_UNROLL(16)
    for (int u = 0; u < unroll; ++u) {
      auto next = step.load(source + static_cast<std::size_t>(u) * Step::lanes);
      if constexpr (scaling == Scaling::both) next = step.round(step.scale(next, factors.pre));
      values[u] = step.template apply<Op>(values[u], next);
    }
  }
  if constexpr (scaling != Scaling::none) {
    HWY_UNROLL(16)
    for (int u = 0; u < unroll; ++u) values[u] = step.scale(values[u], factors.post);
  }
  for (int k = 0; k < arrays.last_destination(); ++k) {
    auto* destination = arrays.destination(k) + index;
    HWY_UNROLL(16)
    for (int u = 0; u < unroll; ++u) step.store(values[u], destination + static_cast<std::size_t>(u) * Step::lanes);
  }
}

// Fewer elements than fill a vector: by halves, so that no byte outside the arrays is touched.
template <class Kit, class Op, Scaling scaling, std::size_t lanes, class Arrays, class Factor>
HWY_INLINE void finish_by_halves(const Arrays& arrays, Factors<Factor> factors, std::size_t index, std::size_t left) {
  if constexpr (lanes >= 1) {
    if ((left & lanes) != 0) {
      advance<Op, scaling, 1>(typename Kit::template Step<lanes>{}, arrays, factors, index);
      index += lanes;
    }
    finish_by_halves<Kit, Op, scaling, lanes / 2>(arrays, factors, index, left);
  }
}

template <class Kit, class Op, Scaling scaling, class Arrays, class Factor>
HWY_INLINE void finish(const Arrays& arrays, Factors<Factor> factors, std::size_t index, std::size_t left) {
#if HVD_MASKED_STEPS
  if (left != 0) advance<Op, scaling, 1>(typename Kit::MaskedStep(left), arrays, factors, index);
#else
  finish_by_halves<Kit, Op, scaling, Kit::lanes / 2>(arrays, factors, index, left);
#endif
}

// Asks for the lines of the destinations that come up 1 KB later, to write to: they may be another core's.
template <class Arrays>
HWY_INLINE void prefetch_destinations(const Arrays& arrays, std::size_t index, std::size_t bytes) {
  constexpr std::size_t distance = 1024;
  for (int k = 0; k < arrays.last_destination(); ++k) {
    const char* ahead = reinterpret_cast<const char*>(arrays.destination(k) + index) + distance;
    for (std::size_t line = 0; line < bytes; line += 64) __builtin_prefetch(ahead + line, 1);
  }
}

template <class Kit, class Op, Scaling scaling, int sources, int destinations>
HWY_NOINLINE void reduce_loop(const void* const* source_list, int source_count, void* const* destination_list,
                              int destination_count, std::size_t count, Factors<typename Kit::Factor> factors) {
  const Arrays<typename Kit::Stored, sources, destinations> arrays{source_list, source_count, destination_list,
                                                                   destination_count};
  constexpr int unroll = HWY_TARGET == HWY_SCALAR ? 16 : 4;
  constexpr std::size_t block = unroll * Kit::Wide::lanes;
  std::size_t index = 0;
  for (; index + block <= count; index += block) {
    prefetch_destinations(arrays, index, block * sizeof(typename Kit::Stored));
    advance<Op, scaling, unroll>(typename Kit::Wide{}, arrays, factors, index);
  }
  for (; index + Kit::lanes <= count; index += Kit::lanes) {
    advance<Op, scaling, 1>(typename Kit::template Step<Kit::lanes>{}, arrays, factors, index);
  }
  finish<Kit, Op, scaling>(arrays, factors, index, count - index);
}

// Picks the loop for the factors. Only sums have a loop of their own for a postscale alone: that is the average.
template <class Kit, class Op>
HWY_INLINE void reduce_scaled_or_not(const void* const* sources, int source_count, void* const* destinations,
                                     int destination_count, std::size_t count, Scale scale,
                                     Factors<typename Kit::Factor> factors) {
  constexpr Scaling post = std::is_same_v<Op, Sum> ? Scaling::post : Scaling::both;
  auto loop = &reduce_loop<Kit, Op, Scaling::both, 0, 0>;
  if (scale.pre == 1.0) {
    loop = scale.post == 1.0 ? &reduce_loop<Kit, Op, Scaling::none, 0, 0> : &reduce_loop<Kit, Op, post, 0, 0>;
  }
  loop(sources, source_count, destinations, destination_count, count, factors);
}

// A type that is reduced as it is.
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
