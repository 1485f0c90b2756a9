#pragma once
// 16-bit floating point for MPI, which has no such types: MPI types with user-defined sums, as libraries over MPI
// define them; and plain arithmetic with which results are compared.
#include <mpi.h>

#include <cstdint>

namespace hvd::benchmark {

float from_half(std::uint16_t bits);
std::uint16_t to_half(float value);  // to nearest, ties to even
float from_bfloat(std::uint16_t bits);
std::uint16_t to_bfloat(float value);  // to nearest, ties to even; denormals are kept

// Must not live longer than MPI runs.
struct SixteenBitSums {
  SixteenBitSums();
  ~SixteenBitSums();
  SixteenBitSums(const SixteenBitSums&) = delete;
  SixteenBitSums& operator=(const SixteenBitSums&) = delete;

  MPI_Datatype type = MPI_DATATYPE_NULL;  // an MPI type of two opaque bytes
  MPI_Op halves = MPI_OP_NULL;            // eight at a time with F16C if the processor has it, as in Horovod
  MPI_Op bfloats_scalar = MPI_OP_NULL;    // a sum that handles one element after the other
  MPI_Op bfloats_compiled = MPI_OP_NULL;  // the same loop, vectorised by the compiler
};

}  // namespace hvd::benchmark
