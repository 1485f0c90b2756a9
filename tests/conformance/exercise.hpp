#pragma once
// Runs one algorithm over the teams of some ranks and compares the results with the naive reference.
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/collective.hpp"
#include "ranks_in_turn.hpp"
#include "sanitized.hpp"

namespace hvd::testing {

// The parameters of an exercise besides the verb.
struct Exercise {
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::int64_t count = 0;  // allgather, reduce_scatter: of all seats together; alltoall: the most that a seat sends
  bool in_place = false;
  int segments = 1;  // the number of tensors of the batch, some of them empty
  double prescale = 1.0, postscale = 1.0;
  int root = 0;
  bool even_counts = false;  // allgather and reduce_scatter: no numbers are told; alltoall: even splits
  int joined = -1;           // this rank has no tensors, or none on one side (`lacks`); -1: no rank
  enum class Lacks { both, input, output } lacks = Lacks::both;
  std::string describe() const;
};

// The ranks that run an exercise: either all ranks of the world in this process (RanksInTurn), or one of several
// processes' ranks.
class Performers {
 public:
  using Tasks = RanksInTurn::Tasks;  // by rank; null for ranks of other processes
  virtual ~Performers() = default;
  virtual int size() const = 0;
  virtual bool is_here(int rank) const = 0;
  virtual DeviceKind device() const { return DeviceKind::host; }
  // So many consecutive ranks give their mean to Adasum.
  virtual int ranks_of_mean() const { return 1; }
  // The team of any rank of this process.
  virtual collectives::Team& team() = 0;
  virtual Tasks plan(const collectives::Algorithm& algorithm, const Collective& collective) = 0;
  // The parts are in host memory, whatever the device is.
  virtual Progress run(Tasks& tasks, const std::vector<Part>& parts) = 0;
  virtual void abort() = 0;
};
bool exercise(Performers& ranks, const collectives::Algorithm& algorithm, Verb verb, const Exercise& what,
              int batches = 2);

// Plans once and runs `batches` batches with different values. False if the algorithm cannot do this over the team.
bool exercise(RanksInTurn& ranks, const collectives::Algorithm& algorithm, Verb verb, const Exercise& what,
              int batches = 2);

// An alltoall of two ranks with more than 2^31 elements in each direction. All tensors of a rank but the last are the
// same block of 32 MiB.
void exchange_giants(Performers& ranks, const collectives::Algorithm& algorithm);
void exchange_giants(RanksInTurn& ranks, const collectives::Algorithm& algorithm);

std::vector<DataType> every_data_type();

// The number of elements of each seat. The numbers differ, some are zero, and their sum is the total.
std::vector<std::int64_t> uneven_counts(std::int64_t total, int seats);

}  // namespace hvd::testing
