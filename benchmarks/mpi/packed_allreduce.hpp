#pragma once
// The simplest stand-in for upstream Horovod: the least work that its CPU path over MPI has to do with a batch.
#include <mpi.h>

#include "mpi/tensors.hpp"

namespace hvd::benchmark {

// pack + MPI_Allreduce + scale + unpack on the caller's thread, without any control plane.
class PackedAllreduce {
 public:
  PackedAllreduce(const Tensors& tensors, int size);
  ~PackedAllreduce();
  PackedAllreduce(const PackedAllreduce&) = delete;
  PackedAllreduce& operator=(const PackedAllreduce&) = delete;
  void operator()(MPI_Comm communicator);

 private:
  const Tensors& tensors_;
  float scale_;
  float* buffer_;
};

}  // namespace hvd::benchmark
