#pragma once
// Random draws that depend only on a seed and a place in a program. The rank and the order of draws do not matter.
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace hvd::programs {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  // Separate dice for the place that these numbers name. They are equal on every rank that names the same numbers.
  Dice of(std::initializer_list<std::int64_t> names) const {
    Dice other(state_ ^ 0x6A09E667F3BCC909ull);
    for (std::int64_t name : names) other.state_ = other.draw() ^ static_cast<std::uint64_t>(name);
    return other;
  }

  std::uint64_t draw() {
    std::uint64_t mixed = state_ += 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBull;
    return mixed ^ mixed >> 31;
  }
  int below(int end) { return static_cast<int>(draw() % static_cast<std::uint64_t>(end)); }
  int between(int first, int last) { return first + below(last - first + 1); }
  bool one_in(int number) { return below(number) == 0; }
  template <typename T>
  T one_of(std::initializer_list<T> all) {
    return all.begin()[below(static_cast<int>(all.size()))];
  }
  template <typename T>
  const T& one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(below(static_cast<int>(all.size())))];
  }
  template <typename T>
  void shuffle(std::vector<T>& all) {
    for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[draw() % i]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace hvd::programs
