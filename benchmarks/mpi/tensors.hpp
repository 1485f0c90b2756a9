#pragma once
// The tensors of one training step.
#include <cstddef>
#include <vector>

namespace hvd::benchmark {

// Returns the numbers of elements of ResNet-50's gradients in the order in which a backward pass makes them (161
// tensors, then again from the beginning up to `count`). They are scaled so that their sum is `total`.
std::vector<std::size_t> resnet50_gradients(std::size_t count, std::size_t total);

// Tensors of floats. Each has its own memory, as a framework allocates it.
class Tensors {
 public:
  explicit Tensors(const std::vector<std::size_t>& counts);
  ~Tensors();
  Tensors(const Tensors&) = delete;
  Tensors& operator=(const Tensors&) = delete;

  struct Tensor {
    float* data;
    std::size_t count;
    std::size_t offset;  // position in the array of all elements
  };
  const std::vector<Tensor>& all() const { return tensors_; }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(float); }

  // Writes whole numbers that depend on place, rank and turn. They are so small that no sum of them is rounded.
  void write(int rank, int turn);
  // True if the tensors hold scale * the sum over all ranks of what write() wrote.
  bool hold_sums(int size, int turn, float scale) const;

 private:
  std::vector<Tensor> tensors_;
  std::size_t count_ = 0;
};

// Returns what rank `rank` writes at place `i` in this turn.
inline int written_value(std::size_t i, int rank, int turn) {
  return static_cast<int>((static_cast<unsigned>(i) * 7 + static_cast<unsigned>(rank * 3 + turn)) & 31);
}
inline int summed_value(std::size_t i, int size, int turn) {
  int sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += written_value(i, rank, turn);
  return sum;
}

}  // namespace hvd::benchmark
