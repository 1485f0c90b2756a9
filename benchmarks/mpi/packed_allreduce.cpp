#include "mpi/packed_allreduce.hpp"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace hvd::benchmark {

namespace {

#if defined(__x86_64__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void scale_all(float* data, std::size_t count, float scale) {
  for (std::size_t i = 0; i < count; ++i) data[i] *= scale;
}

}  // namespace

PackedAllreduce::PackedAllreduce(const Tensors& tensors, int size)
    : tensors_(tensors), scale_(1.0f / static_cast<float>(size)) {
  void* memory = ::mmap(nullptr, tensors.bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  std::memset(memory, 0, tensors.bytes());
  buffer_ = static_cast<float*>(memory);
}

PackedAllreduce::~PackedAllreduce() {
  ::munmap(buffer_, tensors_.bytes());
}

void PackedAllreduce::operator()(MPI_Comm communicator) {
  for (const auto& tensor : tensors_.all())
    std::memcpy(buffer_ + tensor.offset, tensor.data, tensor.count * sizeof(float));
  MPI_Allreduce(MPI_IN_PLACE, buffer_, static_cast<int>(tensors_.count()), MPI_FLOAT, MPI_SUM, communicator);
  scale_all(buffer_, tensors_.count(), scale_);
  for (const auto& tensor : tensors_.all())
    std::memcpy(tensor.data, buffer_ + tensor.offset, tensor.count * sizeof(float));
}

}  // namespace hvd::benchmark
