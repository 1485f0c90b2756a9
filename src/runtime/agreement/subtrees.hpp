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
  explicit Subtrees(int children) : more_(static_cast<std::size_t>(children) / 64) {}

  void add(int part) {
    std::uint64_t& word = part < 64 ? first_ : more_[static_cast<std::size_t>(part) / 64 - 1];
    word |= std::uint64_t{1} << (part % 64);
  }
  void clear() {
    first_ = 0;
    std::ranges::fill(more_, 0);
  }
  bool is_empty() const {
    return first_ == 0 && std::ranges::all_of(more_, [](std::uint64_t word) { return word == 0; });
  }
  bool has_all_of(const Subtrees& others) const {
    if ((others.first_ & ~first_) != 0) return false;
    for (std::size_t i = 0; i < more_.size(); ++i)
      if ((others.more_[i] & ~more_[i]) != 0) return false;
    return true;
  }

 private:
  std::uint64_t first_ = 0;  // the first 64 parts; few nodes have more, so most need no other memory
  std::vector<std::uint64_t> more_;
};

}  // namespace hvd::runtime
