// The kernels for f16 and bf16. Elements are converted to f32, reduced and post-scaled there, and rounded once, to
// nearest even. This file rounds by itself where Highway would truncate: in its bf16 conversion, and in its f16
// conversion on CPUs without an instruction for it. Instructions for bf16 conversion are not used, because they flush
// denormal numbers to zero.
#include "devices/host/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "devices/host/reduce_halves.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "devices/host/adasum_loops.inl"
#include "devices/host/kernel_table.hpp"
#include "devices/host/reduce_loops.inl"

#undef HVD_CPU_CONVERTS_F16
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON
#define HVD_CPU_CONVERTS_F16 1
#else
#define HVD_CPU_CONVERTS_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace hvd::devices::HWY_NAMESPACE {

// Converts f16 between u16 vectors and the f32 vectors of D.
template <class D>
struct Half {
  using Narrow = hn::Rebind<std::uint16_t, D>;
  using Value = hn::Vec<D>;
  using Bits = hn::Vec<Narrow>;

#if HVD_CPU_CONVERTS_F16
  static HWY_INLINE Value widen(Bits half) {
    return hn::PromoteTo(D{}, hn::BitCast(hn::Rebind<hwy::float16_t, D>{}, half));
  }
  static HWY_INLINE Bits narrow(Value value) {
    return hn::BitCast(Narrow{}, hn::DemoteTo(hn::Rebind<hwy::float16_t, D>{}, value));
  }
#else
  // Selects bit by bit, because the compiler can then use vectors where Highway has none.
  template <class V, class M>
  static HWY_INLINE V choose(M mask, V yes, V no) {
    return hn::Xor(no, hn::And(hn::VecFromMask(hn::DFromV<V>{}, mask), hn::Xor(yes, no)));
  }
  static HWY_INLINE Value widen(Bits half) {
    const hn::RebindToSigned<D> di;
    const auto bits = hn::PromoteTo(di, half);
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(di, 0x8000)));
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFF));
    const auto rebias = hn::Set(di, (127 - 15) << 23);
    const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
    const auto subnormal = hn::BitCast(di, hn::Mul(hn::ConvertTo(D{}, magnitude), hn::Set(D{}, 0x1p-24F)));
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(di, 0x0400));
    const auto is_special = hn::Gt(magnitude, hn::Set(di, 0x7BFF));  // infinity or NaN: all exponent bits are 1
    const auto finite = choose(is_subnormal, subnormal, normal);
    return hn::BitCast(D{}, hn::Or(sign, choose(is_special, hn::Add(normal, rebias), finite)));
  }
  static HWY_INLINE Bits narrow(Value value) {
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(di, value);
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
    const auto sign = hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<D>{}, hn::Xor(bits, magnitude)));
    // Normal numbers: adds half of the last place, minus one, plus the last bit that stays.
    const auto last = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
    const auto bias = hn::Set(di, 0xFFF - ((127 - 15) << 23));
    const auto normal = hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(bias, last)));
    // Subnormal numbers: adding 0.5 rounds them, because the last place of 0.5 is 2^-24.
    const auto half = hn::Set(D{}, 0.5F);
    const auto subnormal = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(D{}, magnitude), half)), hn::BitCast(di, half));
    const auto nan = hn::Or(hn::ShiftRight<13>(hn::And(magnitude, hn::Set(di, 0x7FFFFF))), hn::Set(di, 0x7E00));
    auto result = choose(hn::Lt(magnitude, hn::Set(di, 113 << 23)), subnormal, normal);
    // values from 65536 on become infinity
    result = choose(hn::Gt(magnitude, hn::Set(di, 0x477FFFFF)), hn::Set(di, 0x7C00), result);
    result = choose(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), nan, result);
    return hn::DemoteTo(Narrow{}, hn::Or(result, hn::BitCast(di, sign)));
  }
#endif
};

// A bf16 is the upper half of an f32. Rounds the upper halves of `value`; the lower halves have no meaning afterwards.
// A NaN keeps its bits: the lower half is zero in a NaN made from a bf16 and in one from an invalid operation, so
// nothing is carried into the upper half.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_upper_half(D, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto last = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  return hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), last);
}

// Converts bf16.
template <class D>
struct Brain {
  using Narrow = hn::Rebind<std::uint16_t, D>;
  using Value = hn::Vec<D>;
  using Bits = hn::Vec<Narrow>;

  static HWY_INLINE Value widen(Bits brain) {
    return hn::BitCast(D{}, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>{}, brain)));
  }
  static HWY_INLINE Bits narrow(Value value) {
    const auto upper = hn::ShiftRight<16>(round_upper_half(D{}, value));
    return hn::DemoteTo(Narrow{}, hn::BitCast(hn::RebindToSigned<D>{}, upper));
  }
};

template <class D, template <class> class Format>
struct HalfStep {
  using Convert = Format<D>;
  using Narrow = typename Convert::Narrow;
  using Value = hn::Vec<D>;
  static constexpr std::size_t lanes = hn::MaxLanes(D{});

  HWY_INLINE Value load(const std::uint16_t* from) const { return Convert::widen(load_lanes(Narrow{}, from)); }
  HWY_INLINE void store(Value value, std::uint16_t* to) const { store_lanes(Convert::narrow(value), Narrow{}, to); }
  template <class Op>
  HWY_INLINE Value apply(Value left, Value right) const {
    return Op::apply(left, right);
  }
  HWY_INLINE Value scale(Value value, float factor) const { return hn::Mul(value, hn::Set(D{}, factor)); }
  HWY_INLINE Value round(Value value) const { return Convert::widen(Convert::narrow(value)); }
};

#if HVD_MASKED_STEPS
template <class D, template <class> class Format>
struct MaskedHalfStep : HalfStep<D, Format> {
  using typename HalfStep<D, Format>::Convert;
  using typename HalfStep<D, Format>::Narrow;
  using typename HalfStep<D, Format>::Value;
  hn::Mask<Narrow> mask;

  explicit HWY_INLINE MaskedHalfStep(std::size_t count) : mask(hn::FirstN(Narrow{}, count)) {}
  HWY_INLINE Value load(const std::uint16_t* from) const {
    return Convert::widen(hn::MaskedLoad(mask, Narrow{}, from));
  }
  HWY_INLINE void store(Value value, std::uint16_t* to) const {
    hn::BlendedStore(Convert::narrow(value), mask, Narrow{}, to);
  }
};
#endif

#if HWY_TARGET != HWY_SCALAR
// A full vector of bf16 as two vectors of f32: one has the elements at even places, the other those at odd places. So
// no element has to move between places.
struct BrainPairs {
  using Narrow = hn::ScalableTag<std::uint16_t>;
  using D = hn::Repartition<float, Narrow>;
  using Unsigned = hn::Repartition<std::uint32_t, Narrow>;
  struct Value {
    hn::Vec<D> low, high;
  };
  static constexpr std::size_t lanes = hn::MaxLanes(Narrow{});

  HWY_INLINE Value load(const std::uint16_t* from) const {
    const auto bits = hn::BitCast(Unsigned{}, hn::LoadU(Narrow{}, from));
    const auto high = hn::And(bits, hn::Set(Unsigned{}, 0xFFFF0000U));
    return {hn::BitCast(D{}, hn::ShiftLeft<16>(bits)), hn::BitCast(D{}, high)};
  }
  HWY_INLINE void store(Value value, std::uint16_t* to) const {
    const auto low = hn::ShiftRight<16>(round_upper_half(D{}, value.low));
    const auto high = hn::And(round_upper_half(D{}, value.high), hn::Set(Unsigned{}, 0xFFFF0000U));
    hn::StoreU(hn::BitCast(Narrow{}, hn::Or(low, high)), Narrow{}, to);
  }
  template <class Op>
  HWY_INLINE Value apply(Value left, Value right) const {
    return {Op::apply(left.low, right.low), Op::apply(left.high, right.high)};
  }
  HWY_INLINE Value scale(Value value, float factor) const {
    const auto vector = hn::Set(D{}, factor);
    return {hn::Mul(value.low, vector), hn::Mul(value.high, vector)};
  }
  HWY_INLINE Value round(Value value) const {
    const auto mask = hn::Set(Unsigned{}, 0xFFFF0000U);
    return {hn::BitCast(D{}, hn::And(round_upper_half(D{}, value.low), mask)),
            hn::BitCast(D{}, hn::And(round_upper_half(D{}, value.high), mask))};
  }
};
#endif

template <template <class> class Format>
struct HalfKitBase {
  using Stored = std::uint16_t;
  using Factor = float;
  using D = hn::ScalableTag<float>;
  static constexpr std::size_t lanes = hn::MaxLanes(D{});
  template <std::size_t n>
  using Step = HalfStep<hn::CappedTag<float, n>, Format>;
  using Wide = HalfStep<D, Format>;
#if HVD_MASKED_STEPS
  using MaskedStep = MaskedHalfStep<D, Format>;
#endif
};

using HalfKit = HalfKitBase<Half>;

struct BrainKit : HalfKitBase<Brain> {
#if HWY_TARGET != HWY_SCALAR
  using Wide = BrainPairs;
#endif
};

template <class Kit, class Op>
void reduce_halves(const void* const* sources, int source_count, void* const* destinations, int destination_count,
                   std::int64_t count, Scale scale) {
  if (count <= 0) return;
  const auto n = static_cast<std::size_t>(count);
  const bool scaled = scale.pre != 1.0 || scale.post != 1.0;
  if (source_count == 1 && !scaled) {
    for (int k = 0; k < destination_count; ++k) {
      if (destinations[k] != sources[0]) std::memcpy(destinations[k], sources[0], n * sizeof(std::uint16_t));
    }
    return;
  }
  reduce_scaled_or_not<Kit, Op>(sources, source_count, destinations, destination_count, n, scale);
}

// Products and weighted sums work on blocks that are first converted to f32.
constexpr std::size_t widened_at_once = 256;
static_assert(widened_at_once % partial_sums == 0);

template <class Kit>
HWY_INLINE void widen_block(const std::uint16_t* from, float* to, std::size_t count) {
  std::size_t index = 0;
  for (; index + Kit::lanes <= count; index += Kit::lanes) {
    hn::StoreU(typename Kit::template Step<Kit::lanes>{}.load(from + index), typename Kit::D{}, to + index);
  }
  for (; index < count; ++index) {
    to[index] = hn::GetLane(typename Kit::template Step<1>{}.load(from + index));
  }
}

template <class Kit>
HWY_INLINE void narrow_block(const float* from, std::uint16_t* to, std::size_t count) {
  std::size_t index = 0;
  for (; index + Kit::lanes <= count; index += Kit::lanes) {
    typename Kit::template Step<Kit::lanes>{}.store(hn::LoadU(typename Kit::D{}, from + index), to + index);
  }
  for (; index < count; ++index) {
    typename Kit::template Step<1>{}.store(hn::Set(hn::CappedTag<float, 1>{}, from[index]), to + index);
  }
}

template <class Kit>
Products products_of_halves(const void* left, const void* right, std::int64_t count) {
  PartialProducts sums;
  float a[widened_at_once], b[widened_at_once];
  const auto all = static_cast<std::size_t>(count);
  for (std::size_t begin = 0; begin < all; begin += widened_at_once) {
    const std::size_t part = all - begin < widened_at_once ? all - begin : widened_at_once;
    widen_block<Kit>(static_cast<const std::uint16_t*>(left) + begin, a, part);
    widen_block<Kit>(static_cast<const std::uint16_t*>(right) + begin, b, part);
    add_products(a, b, part, sums);
  }
  return sums.total();
}

template <class Kit>
void weighted_sum_of_halves(const void* left, const void* right, void* to, std::int64_t count, Weights weights) {
  float a[widened_at_once], b[widened_at_once];
  const auto all = static_cast<std::size_t>(count);
  for (std::size_t begin = 0; begin < all; begin += widened_at_once) {
    const std::size_t part = all - begin < widened_at_once ? all - begin : widened_at_once;
    widen_block<Kit>(static_cast<const std::uint16_t*>(left) + begin, a, part);
    widen_block<Kit>(static_cast<const std::uint16_t*>(right) + begin, b, part);
    add_weighted(a, b, a, part, weights);
    narrow_block<Kit>(a, static_cast<std::uint16_t*>(to) + begin, part);
  }
}

template <class Kit>
void add_kernels_of(DataType dtype, KernelTable& table) noexcept {
  table.at(dtype, ReduceOp::sum) = &reduce_halves<Kit, Sum>;
  table.at(dtype, ReduceOp::min) = &reduce_halves<Kit, Minimum>;
  table.at(dtype, ReduceOp::max) = &reduce_halves<Kit, Maximum>;
  table.at(dtype, ReduceOp::product) = &reduce_halves<Kit, Product>;
  table.products[static_cast<std::size_t>(dtype)] = &products_of_halves<Kit>;
  table.weighted_sum[static_cast<std::size_t>(dtype)] = &weighted_sum_of_halves<Kit>;
}

void add_half_kernels(KernelTable& table) noexcept {
  add_kernels_of<HalfKit>(DataType::f16, table);
  add_kernels_of<BrainKit>(DataType::bf16, table);
}

}  // namespace hvd::devices::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
