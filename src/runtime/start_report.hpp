#pragma once
// The line about the time that the start took, and which part of it took how long.
#include <optional>
#include <string>

#include "base/world.hpp"

namespace hvd::runtime {

// As rank 0 saw it, in seconds since 1970.
struct StartTimes {
  std::optional<double> launched_at;  // when horovodrun began, if it has told
  double met_at = 0;                  // the world was agreed on
  std::optional<double> mpi_took;     // if an MPI is used
  double done_at = 0;
};

// Returns "started in 1.9 s: launch 0.3, imports 1.2 (slowest: rank 3 on n2), bootstrap 0.1, …". Clocks of different
// hosts may differ a little, so no part is below 0.
std::string describe_start(const World& world, const StartTimes& times);

}  // namespace hvd::runtime
