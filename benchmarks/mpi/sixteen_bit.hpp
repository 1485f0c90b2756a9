#pragma once
// 16-bit floating point for the peers, which have none of their own: MPI types with user-defined sums, as libraries
// over MPI bring them; and the plain arithmetic that results are compared with.
#include <mpi.h>

#include <cstdint>

namespace hvd::benchmark {

float from_half(std::uint16_t bits);
std::uint16_t to_half(float value);  // to nearest, ties to even
float from_bfloat(std::uint16_t bits);
std::uint16_t to_bfloat(float value);  // to nearest, ties to even; denormals are kept

// Exists as long as MPI does.
struct SixteenBitSums {
  SixteenBitSums();
  ~SixteenBitSums();
  SixteenBitSums(const SixteenBitSums&) = delete;
  SixteenBitSums& operator=(const SixteenBitSums&) = delete;

  MPI_Datatype type = MPI_DATATYPE_NULL;  // two opaque bytes
  MPI_Op halves = MPI_OP_NULL;            // eight lanes of F16C at a time where the processor has it, as Horovod's own
  MPI_Op bfloats_scalar = MPI_OP_NULL;    // one element after the other
  MPI_Op bfloats_compiled = MPI_OP_NULL;  // the same loop, left to the compiler's vectoriser
};

}  // namespace hvd::benchmark
