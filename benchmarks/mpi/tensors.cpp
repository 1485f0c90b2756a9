#include "mpi/tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>

#include "mpi/measure.hpp"

namespace hvd::benchmark {

namespace {

// The sizes follow from the definition of the layers: a stem; four stages of 3, 4, 6 and 3 bottlenecks (1x1, 3x3, 1x1,
// each with a normalisation's scale and shift; the first bottleneck of a stage has another 1x1 in its shortcut); and a
// classifier.
std::vector<std::size_t> resnet50_parameters() {
  std::vector<std::size_t> sizes;
  auto convolution = [&](std::size_t in, std::size_t out, std::size_t window) {
    sizes.push_back(in * out * window * window);
    sizes.push_back(out);
    sizes.push_back(out);
  };
  convolution(3, 64, 7);
  std::size_t in = 64, width = 64;
  for (int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(in, 4 * width, 1);
      in = 4 * width;
    }
    width *= 2;
  }
  sizes.push_back(in * 1000);
  sizes.push_back(1000);
  return sizes;
}

}  // namespace

std::vector<std::size_t> resnet50_gradients(std::size_t count, std::size_t total) {
  std::vector<std::size_t> parameters = resnet50_parameters();
  std::reverse(parameters.begin(), parameters.end());
  std::vector<std::size_t> sizes;
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sizes.push_back(parameters[i % parameters.size()]);
    sum += static_cast<double>(sizes.back());
  }
  double factor = static_cast<double>(total) / sum;
  for (std::size_t& size : sizes) {
    size = std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(static_cast<double>(size) * factor)));
  }
  return sizes;
}

Tensors::Tensors(const std::vector<std::size_t>& counts) {
  constexpr std::size_t alignment = 64;
  for (std::size_t count : counts) {
    std::size_t bytes = (count * sizeof(float) + alignment - 1) / alignment * alignment;
    void* data = std::aligned_alloc(alignment, bytes);
    if (data == nullptr) throw std::bad_alloc();
    std::memset(data, 0, bytes);
    tensors_.push_back({static_cast<float*>(data), count, count_});
    count_ += count;
  }
}

Tensors::~Tensors() {
  for (const Tensor& tensor : tensors_) std::free(tensor.data);
}

void Tensors::write(int rank, int turn) {
  for (const Tensor& tensor : tensors_) {
    if (turn == zeros) std::memset(tensor.data, 0, tensor.count * sizeof(float));
    else
      for (std::size_t i = 0; i < tensor.count; ++i)
        tensor.data[i] = static_cast<float>(written_value(tensor.offset + i, rank, turn));
  }
}

bool Tensors::hold_sums(int size, int turn, float scale) const {
  // 13 is no divisor of 32, so all values are checked.
  for (const Tensor& tensor : tensors_) {
    std::size_t stride = tensor.count > 4096 ? 13 : 1;
    for (std::size_t i = 0; i < tensor.count; i += stride)
      if (tensor.data[i] != scale * static_cast<float>(summed_value(tensor.offset + i, size, turn))) return false;
  }
  return true;
}

}  // namespace hvd::benchmark
