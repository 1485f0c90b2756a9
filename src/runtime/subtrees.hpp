#pragma once
// A set of the parts that report to a node's agreement. The parts are the node itself and the subtree of each child.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hvd::runtime {

class Subtrees {
 public:
  static constexpr int own_node = 0;
  static constexpr int of_child(int child) { return child + 1; }

  Subtrees() = default;
  explicit Subtrees(int children) : words_(static_cast<std::size_t>(children) / 64 + 1) {}

  void add(int part) { words_[static_cast<std::size_t>(part) / 64] |= std::uint64_t{1} << (part % 64); }
  void clear() { std::fill(words_.begin(), words_.end(), 0); }
  bool is_empty() const {
    return std::all_of(words_.begin(), words_.end(), [](std::uint64_t word) { return word == 0; });
  }
  bool has_all_of(const Subtrees& others) const {
    for (std::size_t i = 0; i < words_.size(); ++i)
      if ((others.words_[i] & ~words_[i]) != 0) return false;
    return true;
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace hvd::runtime
