// The loops of Adasum over floating types, compiled once per instruction set like reduce_loops.inl. All instruction
// sets add the products in the same order: the element at place i belongs to partial sum i mod 8.
#if defined(HVD_ADASUM_LOOPS) == defined(HWY_TARGET_TOGGLE)
#ifdef HVD_ADASUM_LOOPS
#undef HVD_ADASUM_LOOPS
#else
#define HVD_ADASUM_LOOPS
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <type_traits>

#include "devices/host/host_kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace hvd::devices::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t partial_sums = 8;

struct PartialProducts {
  double dot[partial_sums] = {}, left[partial_sums] = {}, right[partial_sums] = {};

  static HWY_INLINE double total(const double (&parts)[partial_sums]) {
    return ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]));
  }
  HWY_INLINE Products total() const { return {total(dot), total(left), total(right)}; }
};

// Vectors of doubles. f32 is converted when it is loaded. Not used for the baseline, whose vectors have one element.
struct Doubles {
  using D = hn::CappedTag<double, partial_sums>;
  using Value = hn::Vec<D>;
  static constexpr std::size_t lanes = hn::MaxLanes(D{});

  static HWY_INLINE Value load(const double* from) { return hn::LoadU(D{}, from); }
  static HWY_INLINE Value load(const float* from) {
    return hn::PromoteTo(D{}, hn::LoadU(hn::Rebind<float, D>{}, from));
  }
  static HWY_INLINE void store(Value value, double* to) { hn::StoreU(value, D{}, to); }
  static HWY_INLINE void store(Value value, float* to) {
    const hn::Rebind<float, D> narrow;
    hn::StoreU(hn::DemoteTo(narrow, value), narrow, to);
  }
};

// Adds the products of complete runs of eight elements. Returns the number of elements that were added.
template <class T>
HWY_INLINE std::size_t add_runs(const T* left, const T* right, std::size_t count, PartialProducts& sums) {
  std::size_t index = 0;
#if HWY_TARGET != HWY_SCALAR
  constexpr std::size_t vectors = partial_sums / Doubles::lanes;
  Doubles::Value dot[vectors], of_left[vectors], of_right[vectors];
  for (std::size_t v = 0; v < vectors; ++v) {
    dot[v] = Doubles::load(sums.dot + v * Doubles::lanes);
    of_left[v] = Doubles::load(sums.left + v * Doubles::lanes);
    of_right[v] = Doubles::load(sums.right + v * Doubles::lanes);
  }
  for (; index + partial_sums <= count; index += partial_sums) {
    HWY_UNROLL(8)
    for (std::size_t v = 0; v < vectors; ++v) {
      const auto a = Doubles::load(left + index + v * Doubles::lanes);
      const auto b = Doubles::load(right + index + v * Doubles::lanes);
      dot[v] = hn::Add(dot[v], hn::Mul(a, b));
      of_left[v] = hn::Add(of_left[v], hn::Mul(a, a));
      of_right[v] = hn::Add(of_right[v], hn::Mul(b, b));
    }
  }
  for (std::size_t v = 0; v < vectors; ++v) {
    Doubles::store(dot[v], sums.dot + v * Doubles::lanes);
    Doubles::store(of_left[v], sums.left + v * Doubles::lanes);
    Doubles::store(of_right[v], sums.right + v * Doubles::lanes);
  }
#else
  (void)left, (void)right, (void)count, (void)sums;
#endif
  return index;
}

template <class T>
HWY_INLINE void add_products(const T* left, const T* right, std::size_t count, PartialProducts& sums) {
  for (std::size_t index = add_runs(left, right, count, sums); index < count; ++index) {
    const double a = left[index], b = right[index];
    sums.dot[index % partial_sums] += a * b;
    sums.left[index % partial_sums] += a * a;
    sums.right[index % partial_sums] += b * b;
  }
}

template <class T>
HWY_INLINE void add_weighted(const T* left, const T* right, T* to, std::size_t count, Weights weights) {
  std::size_t index = 0;
#if HWY_TARGET != HWY_SCALAR
  const auto of_left = hn::Set(Doubles::D{}, weights.left), of_right = hn::Set(Doubles::D{}, weights.right);
  for (; index + Doubles::lanes <= count; index += Doubles::lanes) {
    const auto a = hn::Mul(of_left, Doubles::load(left + index));
    const auto b = hn::Mul(of_right, Doubles::load(right + index));
    Doubles::store(hn::Add(a, b), to + index);
  }
#endif
  for (; index < count; ++index) to[index] = static_cast<T>(weights.left * left[index] + weights.right * right[index]);
}

}  // namespace hvd::devices::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HVD_ADASUM_LOOPS
