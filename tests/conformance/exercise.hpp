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

// What varies besides the verb.
struct Exercise {
  DataType dtype = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::int64_t count = 0;  // allgather and reduce_scatter: of all seats together; alltoall: what a seat sends, or less
  bool in_place = false;
  int segments = 1;  // the batch is cut into so many tensors, some of them empty
  double prescale = 1.0, postscale = 1.0;
  int root = 0;
  bool even_counts = false;  // allgather and reduce_scatter: no counts in the plan; alltoall: even splits
  int joined = -1;           // this rank has no tensors, or lacks only those of one side
  enum class Lacks { both, input, output } lacks = Lacks::both;
  std::string describe() const;
};

// The ranks that an exercise runs on: all of them in this process (RanksInTurn), or this process's one of several.
class Performers {
 public:
  using Tasks = RanksInTurn::Tasks;  // by rank; null for those that are not here
  virtual ~Performers() = default;
  virtual int size() const = 0;
  virtual bool is_here(int rank) const = 0;
  virtual DeviceKind device() const { return DeviceKind::host; }
  // Of any rank that is here.
  virtual collectives::Team& team() = 0;
  virtual Tasks plan(const collectives::Algorithm& algorithm, const Collective& collective) = 0;
  // The parts lie in host memory, whatever the device.
  virtual Progress run(Tasks& tasks, const std::vector<Part>& parts) = 0;
  virtual void abort() = 0;
};
bool exercise(Performers& ranks, const collectives::Algorithm& algorithm, Verb verb, const Exercise& what,
              int batches = 2);

// Plans once and runs so many batches, each with other values. False if the algorithm cannot do it over this team.
bool exercise(RanksInTurn& ranks, const collectives::Algorithm& algorithm, Verb verb, const Exercise& what,
              int batches = 2);

// An alltoall by two ranks of more than 2^31 elements each way: the same megabytes again and again, then some of its
// own.
void exchange_giants(Performers& ranks, const collectives::Algorithm& algorithm);
void exchange_giants(RanksInTurn& ranks, const collectives::Algorithm& algorithm);

// Elements of each seat: uneven, some none, adding up to the total.
std::vector<std::int64_t> uneven_counts(std::int64_t total, int seats);

}  // namespace hvd::testing
